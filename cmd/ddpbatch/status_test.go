package main

import (
	"os"
	"regexp"
	"testing"

	"ddpbatch/internal/rundir"
)

// An attempt that resumes into an unfinished evaluation writes a line of metrics before it has taken a step: it has no loss.
func TestStatusShowsMetricsWithoutLoss(t *testing.T) {
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
