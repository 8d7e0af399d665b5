package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit"
)

const (
	// oomLimit leaves room for the agents of the race detector's build.
	oomLimit = 512 << 20

	// eater is a rank that needs memory for ever, of two, and the one that the kernel is to choose (proc(5), oom_score_adj).
	eater = `[ "$RANK" = 1 ] || exec sleep 1000
echo 1000 >/proc/self/oom_score_adj
exec tail /dev/zero`

	oomReport = "out of memory: the kernel killed a process because the job's memory limit of 512 MiB (the most that was used: 512 MiB) was reached"
)

// TestOutOfMemory has the kernel kill a rank for want of memory, in a cgroup that has little: the run ends as oom, by all accounts.
func TestOutOfMemory(t *testing.T) {
	if out, err := exec.Command("tail", "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "GNU") {
		t.Skip("needs GNU's tail, which keeps a line in memory however long it is")
	}
	group := testkit.MemoryGroup(t, oomLimit)
	dir := t.TempDir()
	inGroup := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("sh", append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec ddpbatch "$@"`, group}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 137 {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return strings.Join(strings.Fields(string(out)), " ") // the report is folded
	}
	holds := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not said:\n%s", w, text)
			}
		}
	}
	const blamed = "was killed by SIGKILL and was the first to fail"
	holds(inGroup("run", "--standalone", "--nproc-per-node", "2", "--no-python", "sh", "-c", eater), "rank 1 on ", blamed, oomReport, "1 rank followed: 0")

	// once more, and then never again: on these nodes memory runs out as it did
	said := inGroup("simulate", "--nodes", "1", "--nproc-per-node", "2", "--set", `requeue.on=["oom"]`, "--", "sh", "-c", eater)
	holds(said, "rank 1 on node1 "+blamed, oomReport, "memory ran out (node1): requeue 1 of 1", "requeue.max.oom = 1 is used up")
	run := runMade(t, dir)
	for attempt := 1; attempt <= 2; attempt++ {
		v, err := run.Verdict(attempt)
		if err != nil || v.Cause != "oom" || !v.OOM || v.FirstRank != 1 || v.Exit != 137 || v.Signal != 9 || len(v.Nodes) > 0 {
			t.Errorf("verdict of attempt %d: %+v, %v", attempt, v, err)
		}
		holds(strings.Join(strings.Fields(v.Report), " "), oomReport)
	}
	ledger, err := run.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range ledger {
		if e.Event != rundir.EventBegin {
			told = append(told, fmt.Sprint(e.Event, " ", e.Attempt, " ", e.Cause))
		}
	}
	if got, want := strings.Join(told, ", "), "end 1 oom, requeue 1 oom, end 2 oom, give-up 2 oom"; got != want {
		t.Errorf("the ledger says: %s; want: %s", got, want)
	}
	status, out := command(dir, "status", "--json", run.Path())
	if err := status.Run(); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	if row := decode[[]runview.RunStatus](t, out.Bytes())[0]; row.State != "OUT_OF_MEMORY" || row.Cause != "oom" || row.Requeues != 1 {
		t.Errorf("status --json: %+v", row)
	}
	noSurvivors(t, dir)
}
