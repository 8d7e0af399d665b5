package runview

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// TestWaitWarnsOfEveryOutage waits for a job while Slurm's controller is away twice, each time for several looks. The wait warns once for
// each outage.
func TestWaitWarnsOfEveryOutage(t *testing.T) {
	run := fakeslurm.Run(t, "")
	if err := run.SetJobID("12"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		states := []string{"away", "away", "RUNNING", "away", "away", "RUNNING", "COMPLETED"}
		var log bytes.Buffer
		v := &Viewer{
			Now: time.Now, From: text.Dir(run.Path()), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Slurm: &slurm.Client{Run: func(_ context.Context, c slurm.Command) (slurm.Output, error) {
				switch {
				case c.Name != "squeue":
					return slurm.Output{Code: 1}, nil
				case states[0] == "away":
					states = states[1:]
					const silence = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
					return slurm.Output{Code: 1, Stderr: []byte(silence)}, nil
				}
				line := []string{"12", "12", states[0], "None", "N/A", "1:00", run.Spec().Name}
				states = states[1:]
				return slurm.Output{Stdout: []byte(strings.Join(line, "\x1f") + "\n")}, nil
			}},
		}
		if err := v.Wait(t.Context(), run, "12"); err != nil || len(states) > 0 {
			t.Errorf("%v; not asked for %v", err, states)
		}
		if got := strings.Count(log.String(), "is not known at the moment"); got != 2 {
			t.Errorf("warned of %d outages, want 2: %s", got, &log)
		}
	})
}

// The error for a job that failed names the cause, as status does, and the log with the rank's last words.
func TestEndNamesTheCause(t *testing.T) {
	code := 1
	row := RunStatus{Job: "12", VerdictJob: "12", Exit: &code, Message: "rank 0 on n1 exited with code 1" + lastWords + "runs/x/n1.0.err",
		Error: "KeyError: 'lr'", Advice: "add it", Next: "not started again: add it"}
	const want = "job 12: rank 0 on n1 exited with code 1: KeyError: 'lr' (hint: add it)" + lastWords + "runs/x/n1.0.err"
	if err := row.end(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	row.Message, row.Error, row.Advice = "rank 0 on n1 exited with code 1", "", ""
	if err := row.end(); err == nil || err.Error() != "job 12: rank 0 on n1 exited with code 1" {
		t.Errorf("without a known cause: %v", err)
	}
}

// The longer a job is followed, the less often Slurm is asked about it.
func TestStateEvery(t *testing.T) {
	for followed, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Minute: time.Second, 2 * time.Minute: 2 * time.Second, 10 * time.Minute: 10 * time.Second,
		time.Hour: 10 * time.Second,
	} {
		if got := stateEvery(followed); got != want {
			t.Errorf("after %v: every %v, want %v", followed, got, want)
		}
	}
}
