package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

// If a command cannot be run, on all nodes or on one, the exit code is a shell's. One agent reports the reason and names the node.
func testSlurmBadCommands(t *testing.T, c *cluster) {
	plain := c.write("plain.txt", "no program\n")
	c.ok("chmod", "600", plain)
	elf := c.write("elf", "\x7fELF\x02\x01\x01 for nobody")
	orphan := c.write("orphan", "#!/nowhere/interpreter\n")
	// on n3 alone
	here := func(what string) string { return `[ "$(hostname)" != n3 ] || ` + what + `; exec sleep 1000` }
	for _, row := range []struct {
		name    string
		command []string
		exit    int
		says    []string
	}{
		{"is not there", []string{"/nowhere/train"}, 127, []string{"/nowhere/train", "does not exist"}},
		{"is in no PATH", []string{"trian.py-that-nobody-has"}, 127, []string{"trian.py-that-nobody-has", "PATH"}},
		{"is not executable", []string{plain}, 126, []string{"not executable", "chmod +x"}},
		{"is a directory", []string{c.dir}, 126, []string{"directory"}},
		{"is not a program", []string{elf}, 126, []string{"neither a program"}},
		{"lacks its interpreter", []string{orphan}, 127, []string{"interpreter"}},
		{"exits with 3 on one node", []string{"sh", "-c", here("exit 3")}, 3, []string{"rank 2 on n3 exited with code 3"}},
		{"is not there on one node", []string{"sh", "-c", here("exec /nowhere/train")}, 127, []string{"rank 2 on n3", "127"}},
	} {
		var out output
		testkit.Promptly(t, 20*time.Second, func() time.Duration {
			began := time.Now()
			out = c.run("srun",
				append([]string{"-N4", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "ddpbatch", "run", "--"}, row.command...)...)
			t.Logf("%s: it took %v", row.name, time.Since(began))
			return time.Since(began)
		})
		if out.code != row.exit {
			t.Errorf("%s: want exit code %d, got %v", row.name, row.exit, out)
		}
		for _, word := range row.says {
			if !strings.Contains(out.stderr, word) {
				t.Errorf("%s: without %q: %v", row.name, word, out)
			}
		}
		if n := strings.Count(out.stderr, "ddpbatch: "); n != 1 {
			t.Errorf("%s: said %d times: %v", row.name, n, out)
		}
	}
}

// A rank that exits with 0 at once is done, and the others continue without it.
func testSlurmLeavesEarly(t *testing.T, c *cluster) {
	out := c.ok("srun", "-N4", "--ntasks-per-node=1", "ddpbatch", "run", "--", "sh", "-c",
		`[ "$RANK" = 2 ] && exit 0; touch here.$RANK; until [ "$(ls here.* | wc -l)" = 3 ]; do sleep 0.05; done; sleep 1; `+
			`echo "rank $RANK is done"`)
	if n := strings.Count(out.stdout, "is done"); n != 3 {
		t.Errorf("%d ranks went on: %v", n, out)
	}
}

// If one node has another secret, no worker starts, and both sides report it.
func testSlurmOtherSecret(t *testing.T, c *cluster) {
	const run = `[ "$(hostname)" != n2 ] || DDPBATCH_SECRET=$(printf %064d 7)
export DDPBATCH_SECRET
exec ddpbatch run --join-timeout 5 -- sh -c 'echo started'`
	for _, mpi := range []string{"none", "pmi2"} {
		for tries := 1; ; tries++ {
			out := c.run("env", "DDPBATCH_SECRET="+fmt.Sprintf("%064d", 6), "srun", "--mpi="+mpi, "-N3",
				"--ntasks-per-node=1", "bash", "-c", run)
			if strings.Contains(out.stdout, "started") || out.code != exit.Timeout && out.code != exit.Failed {
				t.Errorf("--mpi=%s: %v", mpi, out)
			} else if !strings.Contains(out.stderr, "secret") || !strings.Contains(out.stderr, "n2") {
				if tries < 5 { // Slurm may have started one of the tasks too late for the others
					continue
				}
				t.Errorf("--mpi=%s, and no better before: %v", mpi, out)
			}
			break
		}
	}
}

// A node has two workers and one GPU.
func testSlurmTooFewGPUs(t *testing.T, c *cluster) {
	out := c.run("srun", "-N2", "--ntasks-per-node=1", "--gres=gpu:1", "ddpbatch", "run", "--nproc-per-node", "2", "--",
		"sh", "-c", "echo started")
	if out.code == 0 || strings.Contains(out.stdout, "started") || !strings.Contains(out.stderr, "GPU") ||
		strings.Count(out.stderr, "ddpbatch: ") != 1 {
		t.Errorf("two ranks, one GPU: %v", out)
	}
	c.ok("srun", "-N2", "--ntasks-per-node=1", "--gres=gpu:1", "ddpbatch", "run", "--nproc-per-node", "2", "--gpus", "all", "--", "true")
}

// onlyOn mounts an empty folder over dir on the other nodes, so that only the first node sees the contents.
func (c *cluster) onlyOn(dir string, others ...string) {
	c.t.Helper()
	for _, node := range others {
		c.ok(c.script, "exec", node, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir)
		c.t.Cleanup(func() { c.ok(c.script, "exec", node, "umount", "-l", dir) })
	}
}

// The run directory is on the disk of one node. The other nodes cannot even start the program.
func testSlurmNotShared(t *testing.T, c *cluster) { c.notShared("n1", "n2", "true") }

// As in testSlurmNotShared, but the slurmd of the node that can start the program is slow: it starts its task only after srun has sent the
// order to end. That order is lost, and after srun's KILL (--wait) no process is left to report the reason.
func testSlurmNotSharedLate(t *testing.T, c *cluster) {
	t.Cleanup(func() { c.onNode("n20", "pkill", "-CONT", "-x", "slurmd") })
	c.notShared("n20", "n21", "pkill -STOP -x slurmd", "{ sleep 3; pkill -CONT -x slurmd; } &") // srun waits 10 s for an answer
}

// notShared runs a job on two nodes, the second of which cannot start the program. The script first runs the lines of setup.
func (c *cluster) notShared(first, second string, setup ...string) {
	t := c.t
	t.Helper()
	dir := filepath.Join(c.dir, "local")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.commandJob("local", fmt.Sprintf("nodes = 2\nnodelist = %q", first+","+second), "1", "touch", "started")
	c.onlyOn(dir, second)
	out := c.run("ddpbatch", "submit", "local.toml", "--wait", "--set", `run_dir="local"`, "--set", `launch.grace="1s"`,
		"--set", "setup.script="+quoteTOML(t, setup...))
	if out.code == 0 || !strings.Contains(out.stderr, "could not start") && !strings.Contains(out.stderr, "cannot start every one") {
		t.Errorf("submit --wait: %v", out)
	}
	c.notStarted()
	runs, err := rundir.List(dir)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, want 1 (%v)", len(runs), err)
	}
	if v, err := runs[0].Verdict(1); err != nil || v.Cause != "start" {
		t.Errorf("verdict: %+v, %v; want the cause start", v, err)
	}
	logs, err := filepath.Glob(filepath.Join(runs[0].Path(), "slurm-*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs: %q, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), second) {
		t.Errorf("the job's log (%v):\n%s", err, text)
	}
}

// notStarted checks that no worker has started.
func (c *cluster) notStarted() {
	c.t.Helper()
	if _, err := os.Stat(filepath.Join(c.dir, "started")); err == nil {
		c.t.Error("a worker has begun")
	}
}

// One node lacks the program.
func testSlurmNoProgram(t *testing.T, c *cluster) {
	bin := filepath.Join(c.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	c.ok("cp", c.ok("sh", "-c", "printf %s \"$(command -v ddpbatch)\"").stdout, bin)
	c.onlyOn(bin, "n2")
	out := c.run("srun", "-N2", "-w", "n[1-2]", "--ntasks-per-node=1", "--kill-on-bad-exit=1", filepath.Join(bin, "ddpbatch"), "run",
		"--join-timeout", "20", "--", "echo", "started")
	if out.code == 0 || strings.Contains(out.stdout, "started") || !strings.Contains(out.stderr, "n2") {
		t.Errorf("%v", out)
	}
}

// The disk of the logs and of the verdict is full before the worker fails. The job still has the worker's exit code, and its log reports
// what could not be written.
func testSlurmFullDisk(t *testing.T, c *cluster) {
	c.commandJob("full", "nodes = 1\nnodelist = \"n1\"", "1", "sh", "-c",
		"head -c 1000000 /dev/zero | tr '\\0' x | fold; echo last words >&2; exit 3")
	s := c.submit("full.toml", "--", "--hold")
	attempts := filepath.Dir(filepath.Dir(s.dir.LogsPath(1)))
	c.ok("mkdir", "-p", attempts)
	c.ok(c.script, "exec", "n1", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", attempts)
	t.Cleanup(func() { c.ok(c.script, "exec", "n1", "umount", "-l", attempts) })
	c.ok("scontrol", "release", s.id)
	if job := s.await(); job["ExitCode"] != "3:0" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	log, err := os.ReadFile(s.dir.SlurmLogPath(s.id))
	if err != nil || !strings.Contains(string(log), "no space left on device") ||
		!strings.Contains(string(log), "rank 0 on n1 exited with code 3") {
		t.Errorf("the job's log (%v) ends with:\n%s", err, log[max(0, len(log)-2000):])
	}
	s.nobodyLeft("")
}

// The folder of run directories is read-only: first on the machine that submits the job, then on the node where the job runs.
func testSlurmReadOnly(t *testing.T, c *cluster) {
	dir := filepath.Join(c.dir, "readonly")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.commandJob("readonly", "nodes = 1\nnodelist = \"n1\"", "1", "touch", "started")
	c.ok("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", dir)
	out := c.run("ddpbatch", "submit", "readonly.toml", "--set", `run_dir="readonly"`)
	c.ok("umount", "-l", dir)
	if out.code != exit.Failed && out.code != exit.Usage || !strings.Contains(out.stderr, "read-only") ||
		!strings.Contains(out.stderr, dir) {
		t.Errorf("submit: %v", out)
	}
	c.ok(c.script, "exec", "n1", "mount", "--bind", dir, dir)
	c.ok(c.script, "exec", "n1", "mount", "-o", "remount,ro,bind", dir)
	t.Cleanup(func() { c.ok(c.script, "exec", "n1", "umount", "-l", dir) })
	out = c.run("ddpbatch", "submit", "readonly.toml", "--wait", "--set", `run_dir="readonly"`)
	if out.code != exit.Failed || !strings.Contains(out.stderr, "FAILED") { // Slurm cannot even open the job's log
		t.Errorf("submit --wait: %v", out)
	}
	c.notStarted()
}
