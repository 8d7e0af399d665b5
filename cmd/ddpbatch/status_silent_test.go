package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// A job that ended badly and could write nothing into its run directory: status and submit --wait say what may be wrong.
func TestSilentJob(t *testing.T) {
	crashed := rundir.Verdict{Cause: "crash", Exit: 7, Message: "rank 0 exited with code 7"}
	for name, test := range map[string]struct {
		state, reason string
		verdict       *rundir.Verdict // of job 12, or of the one that it names
		status, wait  string
	}{
		"not started":        {"FAILED", "JobLaunchFailure", nil, "could not start the batch script", "job 12 ended as FAILED: Slurm could not start the batch script"},
		"could not write":    {"FAILED", "None", nil, "is the run directory there on the job's nodes, writable", "job 12 ended as FAILED: no verdict was left"},
		"after an older job": {"FAILED", "NonZeroExitCode", &rundir.Verdict{JobID: "11", Cause: "crash", Exit: 7}, "no verdict was left", "job 12 ended as FAILED: no verdict was left"},
		"said":               {"FAILED", "NonZeroExitCode", &crashed, "", "job 12: rank 0 exited with code 7"},
		"cancelled":          {"CANCELLED", "None", nil, "", "job 12 ended as CANCELLED: no agent left a verdict"},
		"runs":               {"RUNNING", "None", nil, "", "-"},
	} {
		p := newPretendSlurm(t)
		run := attemptRun(t, "")
		if err := run.SetJobID("12"); err != nil {
			t.Fatal(err)
		}
		if test.verdict != nil {
			n, err := run.ClaimAttempt()
			if err != nil {
				t.Fatal(err)
			}
			v := *test.verdict
			if v.Attempt = n; v.JobID == "" {
				v.JobID = "12"
			}
			if err := run.WriteVerdict(v); err != nil {
				t.Fatal(err)
			}
		}
		p.says("squeue.out", strings.ReplaceAll("12|12|"+test.state+"|"+test.reason+"|1|n1|N/A|N/A|1:00|"+run.Spec().Name+"\n", "|", "\x1f"))
		e, _, _ := p.env(0, 0)
		row, err := statusOf(t.Context(), e, run)
		if err != nil || row.State != test.state || (row.Next == "") != (test.status == "") || !strings.Contains(row.Next, test.status) {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
		if !row.Ended {
			continue
		}
		if err := runview.EndOf("12", row); err == nil || !strings.Contains(err.Error(), test.wait) {
			t.Errorf("%s: --wait ends with %v", name, err)
		}
	}
}

// An attempt that resumes into an unfinished evaluation writes a line of metrics before it has taken a step: it has no loss.
func TestStatusOfMetricsWithoutLoss(t *testing.T) {
	for line, want := range map[string]string{
		`{"step":3,"steps":9}`:            `\s3/9\s+-\s`,
		`{"step":3,"steps":9,"loss":0.5}`: `\s3/9\s+0\.5\s`,
	} {
		q := newQueue(t)
		parent, run := q.resumable()
		q.must(os.WriteFile(must(t, rundir.Open, run).MetricsPath(), []byte(line+"\n"), 0o600))
		if code, out, errs := q.run(parent, "status", run); code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %d, %s%s; want %s", line, code, out, errs, want)
		}
	}
}
