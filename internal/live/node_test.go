package live

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
)

// newRun makes a run directory with an attempt whose ranks have logs on these hosts.
func newRun(t *testing.T, hosts ...string) *rundir.Dir {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ddpbatch")
	must(t, os.WriteFile(program, nil, 0o700))
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: t.TempDir(), Binary: program, JobFile: []byte("name = \"x\"\n"), Spec: rundir.Spec{Name: "x", Kind: "simulate"},
	})
	must(t, err)
	n, err := run.ClaimAttempt()
	must(t, err)
	for rank, host := range hosts {
		must(t, os.WriteFile(run.LogPath(n, host, rank, "out"), nil, 0o600))
		must(t, os.WriteFile(run.LogPath(n, host, rank, "err"), nil, 0o600))
	}
	return run
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// child starts a process with only these variables, and returns it once the process runs its program.
func child(t *testing.T, dir string, environ ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo; exec sleep 1000")
	cmd.Env, cmd.Dir = append(environ, "PATH="+os.Getenv("PATH")), dir
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	return cmd
}

func TestRanksAreFoundByTheirEnvironment(t *testing.T) {
	run, other := newRun(t, "n1", "n1", "n1", "n2"), newRun(t, "n1")
	dir := t.TempDir()
	of := func(run *rundir.Dir, node, cookie string, rank int) []string {
		return []string{"DDPBATCH_RUN_DIR=" + run.Path(), "SLURMD_NODENAME=" + node, proc.CookieVariable + "=" + cookie,
			"RANK=" + strconv.Itoa(rank)}
	}
	older := child(t, dir, of(run, "n1", "aa", 1)...)
	first := child(t, dir, of(run, "n1", "bb", 1)...)
	child(t, dir, of(run, "n1", "bb", 1)...) // a process that the rank started
	zero := child(t, dir, of(run, "n1", "bb", 0)...)
	child(t, dir, of(run, "n2", "cc", 3)...)
	child(t, dir, of(other, "n1", "dd", 2)...)
	child(t, dir, "DDPBATCH_RUN_DIR="+run.Path(), "SLURMD_NODENAME=n1", "RANK=2") // a person's process, as Exec starts it
	n := Node{Run: run, Name: "n1"}
	found, err := n.Ranks()
	must(t, err)
	if len(found) != 2 || found[0].Rank != 0 || found[1].Rank != 1 || found[0].PID != zero.Process.Pid ||
		found[1].PID != first.Process.Pid {
		t.Fatalf("found %+v; want rank 0 as %d and rank 1 as %d, not %d", found, zero.Process.Pid, first.Process.Pid, older.Process.Pid)
	}
	if found[0].Dir != dir || found[0].Contained {
		t.Errorf("rank 0 is %+v; want it in %s", found[0], dir)
	}
	if missing, err := n.missing(found); err != nil || !slices.Equal(missing, []int{2}) {
		t.Errorf("missing: %v, %v", missing, err)
	}
	if _, err := n.named(found, []int{0, 3}); err != nil {
		t.Errorf("a rank of another node is missed: %v", err)
	}
	if _, err := n.named(found, []int{0, 2}); err == nil || !strings.Contains(err.Error(), "belongs to rank 2") {
		t.Errorf("a rank that has gone: %v", err)
	}
}

// Podman's client has the variables of its container, and is older than the container. It counts as the rank only until the container runs.
func TestRankInAContainerIsNotItsClient(t *testing.T) {
	run, client := newRun(t, "n1"), filepath.Join(t.TempDir(), "podman")
	program, err := os.ReadFile("/bin/sleep")
	must(t, err)
	must(t, os.WriteFile(client, program, 0o700))
	start := func(path string, flags uintptr) int {
		cmd := exec.Command(path, "1000")
		cmd.Env = []string{"DDPBATCH_RUN_DIR=" + run.Path(), "SLURMD_NODENAME=n1", proc.CookieVariable + "=aa", "RANK=0"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if err := cmd.Start(); err != nil && flags != 0 {
			t.Skipf("needs user namespaces: %v", err)
		} else {
			must(t, err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	check := func(want int) {
		t.Helper()
		found, err := Node{Run: run, Name: "n1"}.Ranks()
		if must(t, err); len(found) != 1 || found[0].PID != want {
			t.Fatalf("found %+v; want %d", found, want)
		}
	}
	pid := start(client, 0)
	start("/bin/sleep", 0) // the container's monitor
	check(pid)
	pid = start("/bin/sleep", syscall.CLONE_NEWUSER|syscall.CLONE_NEWNS)
	check(pid)
	start("/bin/sleep", 0)
	check(pid)
}

// TestRunIsKnownByAnotherPath: a run is recognized even if the home directory has another path on a node.
func TestRunIsKnownByAnotherPath(t *testing.T) {
	run := newRun(t)
	n := Node{Run: run}
	base := filepath.Base(run.Path())
	task, err := run.Task(3)
	must(t, err)
	e := Node{Run: task}
	for path, want := range map[string]bool{run.Path(): true, "/net/home/runs/" + base: true, "/x" + base: false,
		"/x/" + base + "/tasks/3": false, "": false} {
		if n.isRun(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	if !e.isRun("/net/runs/"+base+"/tasks/3") || e.isRun("/net/runs/"+base) || e.isRun("/net/runs/other/tasks/3") {
		t.Error("an element's directory")
	}
}

func TestWhatIsARanksAloneStaysWithIt(t *testing.T) {
	n := Node{Environ: []string{"TERM=xterm-new", "HOME=/home/me", "PATH=/host/bin", "SLURM_PROCID=9"}}
	p := Process{Rank: 3, PID: 77, Environ: []string{
		"DDPBATCH_SECRET=abc", "DDPBATCH_COOKIE=abc", "DDPBATCH_HEARTBEAT_FILE=/x", "TORCHELASTIC_ERROR_FILE=/x", "RANK=3", "WORLD_SIZE=8",
		"SLURM_PROCID=1", "TERM=dumb", "PATH=/image/bin", "DDPBATCH_STOP_FILE=/stop", "CUDA_VISIBLE_DEVICES=1",
	}}
	want := []string{
		"RANK=3", "WORLD_SIZE=8", "SLURM_PROCID=1", "PATH=/image/bin", "DDPBATCH_STOP_FILE=/stop",
		"CUDA_VISIBLE_DEVICES=1", "TERM=xterm-new",
		"DDPBATCH_RANK_PID=77",
	}
	if got := n.environBeside(p); !slices.Equal(got, want) {
		t.Errorf("beside a rank: %q, want %q", got, want)
	}
	p.Contained = true
	got := n.environBeside(p)
	for _, entry := range []string{"PATH=/host/bin", "HOME=/home/me", "RANK=3", "SLURM_PROCID=1",
		"CUDA_VISIBLE_DEVICES=1", "TERM=xterm-new"} {
		if !slices.Contains(got, entry) {
			t.Errorf("beside a rank in a container: %q lacks %s", got, entry)
		}
	}
	for _, entry := range got {
		if strings.HasPrefix(entry, "DDPBATCH_SECRET=") || entry == "PATH=/image/bin" || entry == "SLURM_PROCID=9" {
			t.Errorf("beside a rank in a container there is %s", entry)
		}
	}
	if got := n.environBeside(Process{Rank: noRank}); !slices.Equal(got, n.Environ) {
		t.Errorf("beside no rank: %q", got)
	}
}

func TestExecEndsWithTheHighestCode(t *testing.T) {
	run := newRun(t, "n1", "n1")
	for rank := range 2 {
		child(t, t.TempDir(), "DDPBATCH_RUN_DIR="+run.Path(), "SLURMD_NODENAME=n1", "DDPBATCH_COOKIE=c", "RANK="+strconv.Itoa(rank))
	}
	for _, test := range []struct {
		node    string
		ranks   []int
		command string
		code    int
		out     string
	}{
		{"n1", nil, `printf "a\nb"; exit 3`, 3, "[n1 0] a\n[n1 0] b\n"},
		{"n1", []int{1, 5}, `exit $RANK`, 1, ""},
		{"n1", []int{0, 1}, `kill -9 $$`, 137, ""},
		{"n3", nil, `echo ${RANK-none}`, 0, "[n3 -1] none\n"},
	} {
		var out, errs bytes.Buffer
		n := Node{Run: run, Name: test.node}
		code, err := n.Exec(t.Context(), test.ranks, "[${host} ${rank}] ", []string{"/bin/sh", "-c", test.command}, &out, &errs)
		if code != test.code || err != nil || out.String() != test.out {
			t.Errorf("%+v: code %d, %v, %q, %q", test, code, err, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code, _ := (Node{Run: run, Name: "n1"}).Exec(t.Context(), nil, "", []string{"no-such-program"}, &out, &errs); code != 127 {
		t.Errorf("of a program that is not there the code is %d (%s)", code, errs.String())
	}
}

func TestWhereIsLookedUp(t *testing.T) {
	job := func() *Job {
		return &Job{ID: "7", Attempt: 2, Ranks: []Rank{{0, "n2"}, {1, "n2"}, {2, "n1"}, {5, "n3"}}}
	}
	for _, test := range []struct {
		where Where
		hosts string
		ranks string
		fault string
	}{
		{Where{}, "n2 n1 n3", "", ""},
		{Where{All: true}, "n2 n1 n3", "0-2,5", ""},
		{Where{Ranks: []int{1, 5}}, "n2 n3", "1,5", ""},
		{Where{Node: "n3"}, "n3", "", ""},
		{Where{Node: "n4"}, "", "", "node n4 does not belong to job 7, whose nodes are n[1-3]"},
		{Where{Ranks: []int{3}}, "", "", "rank 3 does not exist in attempt 2 of job 7: its ranks are 0-2, 5"},
	} {
		s, err := job().find(test.where)
		if test.fault != "" {
			if err == nil || !strings.Contains(err.Error(), test.fault) {
				t.Errorf("%+v: %v", test.where, err)
			}
			continue
		}
		if got := strings.Join(s.hosts, " "); err != nil || got != test.hosts || folded(s.ranks) != test.ranks {
			t.Errorf("%+v: on %s, ranks %s, %v", test.where, got, folded(s.ranks), err)
		}
	}
	none := &Job{ID: "7"}
	if _, err := none.find(Where{All: true}); err == nil || !strings.Contains(err.Error(), "has not started its ranks") {
		t.Errorf("of a job without ranks: %v", err)
	}
}
