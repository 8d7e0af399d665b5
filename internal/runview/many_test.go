package runview

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// manyRuns makes runs that differ only in their jobs. Of every ten, one waits, one runs, and the others have ended. Of those the controller
// remembers one, and accounting two in three.
func manyRuns(tb testing.TB, p *fakeslurm.Slurm, n int) (runs []*rundir.Dir) {
	tb.Helper()
	parent := tb.TempDir()
	models := []*rundir.Dir{fakeslurm.Run(tb, ""), fakeslurm.Run(tb, ""), fakeslurm.Run(tb, "")} // one waits, one runs, one has ended
	for _, run := range models[1:] {
		p.Must(os.WriteFile(run.MetricsPath(), []byte(`{"attempt":1,"step":3,"steps":9,"loss":0.5,"samples_per_s":100}`+"\n"), 0o600))
		_, err := run.ClaimAttempt()
		p.Must(err)
	}
	p.Must(models[2].WriteVerdict(rundir.Verdict{Attempt: 1, Cause: "done", FirstRank: -1, Message: "done"}))
	var queue, recorded strings.Builder
	for i := range n {
		id, model := fmt.Sprint(1000+i), min(i%10, 2)
		path := filepath.Join(parent, fmt.Sprintf("x-20260101-000000-%08x", i))
		p.Must(os.CopyFS(path, os.DirFS(models[model].Path())))
		p.Must(os.WriteFile(filepath.Join(path, "jobid"), []byte(id+"\n"), 0o600))
		ledger := fmt.Sprintf(`{"event":"submit","detail":"job %s"}`+"\n", id)
		if model > 0 {
			ledger += fmt.Sprintf(`{"event":"begin","attempt":1,"job":%q}`+"\n", id)
		}
		p.Must(os.WriteFile(filepath.Join(path, "ledger.jsonl"), []byte(ledger), 0o600))
		run, err := rundir.Open(path)
		p.Must(err)
		runs = append(runs, run)
		if state := []string{"PENDING", "RUNNING", "COMPLETED", ""}[min(i%10, 3)]; state != "" {
			fmt.Fprintln(&queue, strings.Join([]string{id, id, state, "None", "N/A", "1:00", "x"}, "\x1f"))
		}
		if model == 2 && i%3 > 0 {
			fmt.Fprintln(&recorded, strings.Join([]string{id, id, "COMPLETED", "None", "N/A", "1:00", "x"}, "\x1f"))
		}
	}
	p.Says("squeue.out", queue.String())
	p.Says("sacct", "#!/bin/sh\necho sacct >>"+p.Dir+"/calls\ncat "+p.Dir+"/sacct.out\n")
	p.Says("sacct.out", recorded.String())
	return runs
}

// For a thousand jobs, most of which Slurm has forgotten, status asks the controller once and accounting once.
func TestStatusesAskSlurmOnceForAll(t *testing.T) {
	p := fakeslurm.New(t)
	runs := manyRuns(t, p, 1000)
	rows, err := viewerOf(p).Statuses(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, row := range rows {
		if row.Failed != nil {
			t.Fatal(row.Failed)
		}
		states[row.State]++
	}
	if states["PENDING"] != 100 || states["RUNNING"] != 100 || states["COMPLETED"] != 800 {
		t.Errorf("the states are %v", states)
	}
	calls, err := os.ReadFile(filepath.Join(p.Dir, "calls"))
	p.Must(err)
	if squeue, sacct := strings.Count(string(calls), "squeue "), strings.Count(string(calls), "sacct\n"); squeue != 1 || sacct != 1 ||
		strings.Count(string(calls), "\n") != 2 {
		t.Errorf("squeue was asked %d times and sacct %d times, in %d calls", squeue, sacct, strings.Count(string(calls), "\n"))
	}
}

// BenchmarkStatusesOfManyRuns: a thousand jobs are shown in less than a second.
func BenchmarkStatusesOfManyRuns(b *testing.B) {
	p := fakeslurm.New(b)
	runs := manyRuns(b, p, 1000)
	for b.Loop() {
		if _, err := viewerOf(p).Statuses(b.Context(), runs); err != nil {
			b.Fatal(err)
		}
	}
}
