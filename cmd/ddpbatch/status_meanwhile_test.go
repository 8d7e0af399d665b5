package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// A job that ends while Slurm is asked: what it left at its end belongs to what Slurm says of it.
func TestStatusOfJobThatEndsMeanwhile(t *testing.T) {
	// back has squeue put a file where it was, before it answers
	back := func(p *pretendSlurm, path string) {
		aside := filepath.Join(p.dir, "aside")
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		p.first("squeue", fmt.Sprintf("mv '%s' '%s'", aside, path))
	}
	t.Run("job", func(t *testing.T) {
		p := newPretendSlurm(t)
		run := attemptRun(t, "")
		if err := run.SetJobID("12"); err != nil {
			t.Fatal(err)
		}
		for _, exit := range []int{137, 7} { // the workers were started again in the job, which is over with the second
			n, err := run.ClaimAttempt()
			if err != nil {
				t.Fatal(err)
			}
			if err := run.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "12", Cause: "crash", Exit: exit, Message: fmt.Sprintf("rank 0 exited with code %d", exit)}); err != nil {
				t.Fatal(err)
			}
		}
		back(p, filepath.Join(run.Path(), "attempts", "2"))
		p.says("squeue.out", strings.ReplaceAll("12|12|FAILED|NonZeroExitCode|1|n1|N/A|N/A|1:00|"+run.Spec().Name+"\n", "|", "\x1f"))
		e, _, _ := p.env(0, 0)
		row, err := statusOf(t.Context(), e, run)
		if err != nil || row.State != "FAILED" || row.Attempt != 2 || row.Exit == nil || *row.Exit != 7 || row.Next != "" {
			t.Errorf("%+v, %v", row, err)
		}
		if err := runview.EndOf("12", row); exitCode(err) != 7 {
			t.Errorf("--wait ends with %v", err)
		}
	})
	t.Run("element", func(t *testing.T) {
		w := newArrayWorld(t, "0-1")
		w.submitted("12")
		w.ran(0, "12", 0)
		back(w.pretendSlurm, w.ran(1, "12", 3).Path())
		w.slurm("12_0 COMPLETED", "12_1 FAILED")
		row := w.status("FAILED", 3, "1 of 2 elements are done; element 1: code 3")
		w.ends(row, "12", 3, "job 12: 1 of 2 elements did not end well\n  job 12_1: code 3")
	})
}
