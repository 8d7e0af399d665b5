package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/templates"
)

// containerRig is Podman and Charliecloud with an image made of this machine's own files: a shell, and what the program needs to start.
// Podman uses a storage folder of the test.
type containerRig struct {
	dir  string
	env  []string
	node func(args ...string) (string, []string) // turns a command into one on the node whose Podman it is; nil: this machine
}

const rigImage = "localhost/ddpbatch-test:latest"

// newContainerRig makes a containerRig, or skips the test.
func newContainerRig(t *testing.T, dir string) *containerRig {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts containers")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: containers of other users need subordinate ids, which a machine need not have")
	}
	for _, name := range []string{"podman", "runc", "ch-run", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s: %v", name, err)
		}
	}
	rig := &containerRig{dir: dir, env: []string{
		"CONTAINERS_CONF=" + filepath.Join(dir, "containers.conf"), "CONTAINERS_STORAGE_CONF=" + filepath.Join(dir, "storage.conf"),
	}}
	rig.write(t, "containers.conf", "[engine]\nruntime = \"runc\"\nevents_logger = \"none\"\n") // crun refuses hybrid cgroups
	rig.write(t, "storage.conf", fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(dir, "storage"),
		filepath.Join(dir, "run")))
	rig.fillImage(t)
	rig.podman(t, "import", "--quiet", filepath.Join(dir, "image.tar"), rigImage)
	t.Cleanup(func() { rig.checkEmpty(t) })
	return rig
}

func (r *containerRig) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fillImage makes the image as a folder and as an archive of that folder.
func (r *containerRig) fillImage(t *testing.T) {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"/bin/busybox": busybox}
	loaded, err := exec.Command("ldd", program).Output() // an error means that it is statically linked
	for _, word := range strings.Fields(string(loaded)) {
		if err == nil && strings.HasPrefix(word, "/") {
			files[word] = word
		}
	}
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		r.write(t, "image"+to, string(data))
		if err := os.Chmod(filepath.Join(r.dir, "image"+to), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "sleep", "cat", "ls", "pwd", "stat"} {
		if err := os.Symlink("busybox", filepath.Join(r.dir, "image/bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	r.write(t, "image/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	r.write(t, "image/etc/group", "root:x:0:\n")
	for _, name := range []string{"dev", "proc", "sys", "tmp", "root", "home", "run", "var", "srv", "mnt", "opt", "usr/bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(r.dir, "image", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("tar", "-C", filepath.Join(r.dir, "image"), "-cf", filepath.Join(r.dir, "image.tar"),
		".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (r *containerRig) podman(t *testing.T, args ...string) string {
	t.Helper()
	name, words := "podman", append([]string{"--cgroup-manager=cgroupfs"}, args...)
	if r.node != nil {
		name, words = r.node(append([]string{name}, words...)...)
	}
	cmd := exec.Command(name, words...)
	cmd.Env = append(os.Environ(), r.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("podman %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// checkEmpty checks that no container is left.
func (r *containerRig) checkEmpty(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containers that are left:\n%s", r.podman(t, "ps", "--all"))
		}
	})
	testkit.Eventually(t, "no container is left", func() bool {
		return strings.TrimSpace(r.podman(t, "ps", "--all", "--quiet")) == ""
	})
}

// table returns the [container] table for a runtime.
func (r *containerRig) table(runtime string) string {
	image := rigImage
	if runtime == "charliecloud" {
		image = filepath.Join(r.dir, "image")
	}
	return fmt.Sprintf("\n[container]\nruntime = %q\nimage = %q\n", runtime, image)
}

// inBox is a shell script in which each rank prints what it sees of its container.
const inBox = `echo "rank $RANK of $WORLD_SIZE at $PWD: $GREETING; $(cat /given/file); $PATH; shm $(stat -c %i /dev/shm); host ${PYTHONPATH-}"
(: >"/given/$RANK") 2>/dev/null && echo "given: writable"
[ -d "$DDPBATCH_RUN_DIR" ] && [ -w "$DDPBATCH_HEARTBEAT_FILE" ] || exit 3
exec ls "$DDPBATCH_RUN_DIR/spec.json"`

func TestContainers(t *testing.T) {
	t.Parallel()
	rig := newContainerRig(t, t.TempDir())
	for _, runtime := range []string{"podman", "charliecloud"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			t.Run("ranks", func(t *testing.T) { testContainerRanks(t, rig, runtime) })
			t.Run("ends", func(t *testing.T) { testContainerEnds(t, rig, runtime) })
			t.Run("agent killed", func(t *testing.T) { testContainerAgentKilled(t, rig, runtime) })
			t.Run("faults", func(t *testing.T) { testContainerFaults(t, rig, runtime) })
			t.Run("starter", func(t *testing.T) { testContainerStarter(t, rig, runtime) })
			t.Run("builtin", func(t *testing.T) { testContainerBuiltin(t, rig, runtime) })
		})
	}
}

// simulate runs a job in the rig, and returns its exit code and its output.
func (r *containerRig) simulate(t *testing.T, dir, job string, args ...string) (int, string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(dir, append([]string{"simulate", "job.toml"}, args...)...)
	cmd.Env = append(os.Environ(), append(r.env, "PYTHONPATH=/outside")...)
	_ = cmd.Run() // the exit code is returned below
	return cmd.ProcessState.ExitCode(), out.String()
}

func testContainerRanks(t *testing.T, rig *containerRig, runtime string) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	given, writes := dir+":/given:ro", 0
	if runtime == "charliecloud" { // it can only mount folders writable
		given, writes = dir+":/given", 4
	}
	mounts := fmt.Sprintf("mounts = [%q]\n", given)
	job := "schema = 1\nname = \"box\"\n[slurm]\nnodes = 2\n[launch]\nnproc_per_node = 2\ncommand = [\"sh\", \"-c\", '''" + inBox +
		"''']\n" +
		"[setup]\nenv = { GREETING = \"two\\nlines 'and' $HOME\" }\n" + rig.table(runtime) + mounts
	code, out := rig.simulate(t, dir, job)
	info, err := os.Stat("/dev/shm")
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 4 {
		said := fmt.Sprintf("rank %d of 4 at %s: two\n", rank, dir)
		if code != 0 || !strings.Contains(out, said) {
			t.Errorf("code %d, and %q is not in\n%s", code, said, out)
		}
	}
	rest := fmt.Sprintf("lines 'and' $HOME; from outside; /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; shm %d; host \n",
		info.Sys().(*syscall.Stat_t).Ino)
	if strings.Count(out, rest) != 4 || strings.Count(out, "/spec.json\n") != 4 {
		t.Errorf("%q and the run's file are not four times in\n%s", rest, out)
	}
	if n := strings.Count(out, "given: writable\n"); n != writes {
		t.Errorf("%d ranks write to what is given, want %d\n%s", n, writes, out)
	}
}

func testContainerEnds(t *testing.T, rig *containerRig, runtime string) {
	noProgram, saysSo := 127, "the image has no no-such-program in its PATH"
	if runtime == "charliecloud" {
		noProgram = 1
	}
	for _, tc := range []struct {
		name, command string
		code          int
		says          string
		args          []string
	}{
		{"its own code", `["sh", "-c", "exit 7"]`, 7, "exited with code 7", nil},
		{"no such program", `["no-such-program"]`, noProgram, saysSo, nil},
		{"killed", `["sh", "-c", "kill -KILL $$"]`, 137, "was killed by SIGKILL", nil},
		{"does not heed TERM", `["sh", "-c", "trap '' TERM; if [ $RANK = 1 ]; then exit 3; fi; while :; do sleep 0.05; done"]`, 3,
			"exited with code 3",
			[]string{"--nproc-per-node", "2"}},
		{"warned", `["sh", "-c", "trap 'exit 75' USR2; [ ${SLURM_RESTART_COUNT:-0} = 0 ] || exit 0; while :; do sleep 0.05; done"]`, 0,
			"the workers saved", []string{"--fault", "warn@time=1s"}},
	} {
		job := "schema = 1\nname = \"ends\"\n[launch]\ngrace = \"1s\"\ncommand = " + tc.command + "\n" + rig.table(runtime)
		code, out := rig.simulate(t, t.TempDir(), job, tc.args...)
		if code != tc.code || !strings.Contains(strings.Join(strings.Fields(out), " "), tc.says) {
			t.Errorf("%s: code %d, want %d and %q in\n%s", tc.name, code, tc.code, tc.says, out)
		}
	}
}

// testContainerAgentKilled kills the agent. The processes in its containers do not live on, and the containers are removed (checkEmpty).
func testContainerAgentKilled(t *testing.T, rig *containerRig, runtime string) {
	dir := t.TempDir()
	job := "schema = 1\nname = \"x\"\n[launch]\ncommand = [\"sh\", \"-c\", \": >there; exec sleep 1000\"]\n" + rig.table(runtime)
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(dir, "simulate", "job.toml")
	cmd.Env = append(os.Environ(), rig.env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() // after a failure
	testkit.Eventually(t, "the rank runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "there"))
		return err == nil
	})
	run := runMade(t, dir)
	ranks := processesWith("DDPBATCH_RUN_DIR="+run.Path(), "RANK=0")
	for _, pid := range processesWith("DDPBATCH_RUN_DIR="+run.Path(), "SLURMD_NODENAME=node1") {
		if !slices.Contains(ranks, pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the run did not fail:\n%s", out)
	}
	testkit.Eventually(t, "nobody is left", func() bool { return len(processesOf(run)) == 0 })
}

func testContainerFaults(t *testing.T, rig *containerRig, runtime string) {
	dir := t.TempDir()
	table := rig.table(runtime)
	if runtime == "charliecloud" {
		table = strings.Replace(table, `/image"`, `/no-image"`, 1)
		code, out := rig.simulate(t, dir, "schema = 1\nname = \"x\"\n[launch]\ncommand = [\"true\"]\n"+table)
		if code != 2 || !strings.Contains(out, "no-image: no such file or directory") {
			t.Errorf("an image that is not there: code %d\n%s", code, out)
		}
	} else {
		table = strings.Replace(table, "ddpbatch-test", "no-image", 1)
		code, out := rig.simulate(t, dir, "schema = 1\nname = \"x\"\n[launch]\ncommand = [\"true\"]\n"+table)
		if code != 125 || !strings.Contains(strings.Join(strings.Fields(out), " "), "each node must have the image: podman pull ") {
			t.Errorf("an image that is not there: code %d\n%s", code, out)
		}
		return
	}
	if runs, err := os.ReadDir(filepath.Join(dir, "runs")); len(runs) > 0 || err == nil {
		t.Errorf("left behind: %v", runs)
	}
}

// testContainerStarter runs the starter job with the given runtime and its image.
func testContainerStarter(t *testing.T, rig *containerRig, runtime string) {
	starter, ok := templates.Find("container")
	if !ok {
		t.Fatal("the starter container was not found")
	}
	image := strings.Trim(strings.Fields(rig.table(runtime))[6], `"`)
	code, out := rig.simulate(t, t.TempDir(), starter.Text, "--set", "container.runtime="+runtime, "--set", "container.image="+image)
	if code != 0 || !strings.Contains(out, "rank 3 of 4 in ") {
		t.Errorf("code %d\n%s", code, out)
	}
}

// testContainerBuiltin runs the built-in trainer in the image. If its ranks could not share memory, it would fail.
func testContainerBuiltin(t *testing.T, rig *containerRig, runtime string) {
	job := strings.Replace(stoppableJob, "epochs = 30", "epochs = 2", 1) + "[mpi]\ntransport = \"shm\"\n" + rig.table(runtime)
	code, out := rig.simulate(t, t.TempDir(), job, "--nodes", "1")
	if code != 0 || !strings.Contains(out, "/checkpoints/step-") {
		t.Errorf("code %d\n%s", code, out)
	}
}
