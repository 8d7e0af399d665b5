package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// writeStep adds a line to the run's metrics, as rank 0 does.
func writeStep(t *testing.T, run *rundir.Dir, attempt int, step int64) {
	t.Helper()
	line, err := json.Marshal(rundir.Metrics{Time: time.Now(), Attempt: attempt, Step: step})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(run.MetricsPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A run that makes progress is given up only when its budget is used up, however little its agents recorded before they were lost.
func TestLossesWithProgressEndAtTheBudget(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, p *pretendSlurm, e *script, run *rundir.Dir, attempt int) // it ends an attempt
		says string
	}{
		{"the first node is lost", func(*testing.T, *pretendSlurm, *script, *rundir.Dir, int) {}, "requeue.max.node = 5 is used up"},
		{"the first node is lost while its verdict is written",
			func(t *testing.T, _ *pretendSlurm, _ *script, run *rundir.Dir, attempt int) {
				if err := os.WriteFile(filepath.Join(run.Path(), "attempts", fmt.Sprint(attempt), "verdict.json"),
					[]byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}, "requeue.max.node = 5 is used up"},
		{"the first node is lost after the early verdict", func(t *testing.T, _ *pretendSlurm, e *script, run *rundir.Dir, attempt int) {
			v := fakeslurm.Lost
			v.Attempt, v.JobID, v.Time = attempt, "12", e.Now()
			if err := run.WriteVerdict(v); err != nil {
				t.Fatal(err)
			}
		}, "requeue.max.node = 5 is used up"},
		{"all agents are lost", func(t *testing.T, p *pretendSlurm, e *script, run *rundir.Dir, attempt int) {
			p.Says("sinfo.out", "n1\x1fidle\nn2\x1fdown*\n")
			p.Says("scontrol.out", fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", attempt-1, "(null)"))
			if err := e.end(t, run, SrunEnd{Code: 137}); exitCode(err) != exit.Requeue {
				t.Fatalf("attempt %d: exit code %d: %v", attempt, exitCode(err), err)
			}
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			for start := range 6 {
				e, _, _ := p.env(start, start+1)
				if err := e.begin(t, run); err != nil {
					t.Fatalf("start %d: %v", start, err)
				}
				writeStep(t, run, start+1, int64(1000*(start+1)))
				if start < 5 {
					test.end(t, p, e, run, start+1)
				}
			}
			if test.says == "" {
				return
			}
			test.end(t, p, &script{Now: time.Now}, run, 6)
			e, _, _ := p.env(6, 0)
			if err := e.begin(t, run); exitCode(err) != exit.Never || !strings.Contains(err.Error(), test.says) {
				t.Errorf("after six losses: exit code %d: %v", exitCode(err), err)
			}
			if v, err := run.Verdict(6); err != nil || v.Step != 6000 || v.Cause != "node" {
				t.Errorf("verdict %+v, %v; want step 6000", v, err)
			}
		})
	}
}

// If the run counts no steps, the time in the queue does not count as life of the attempt.
func TestQueueTimeIsNotTheAttemptsLife(t *testing.T) {
	for _, test := range []struct {
		name  string
		lived time.Duration // according to the times of the ranks' logs
		want  string
	}{
		{"at once", 0, "no progress: 3 attempts in a row"},
		{"after an hour", time.Hour, "requeue.max.node = 5 is used up"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			now := time.Now().Add(-100 * time.Hour)
			for start := range 9 {
				e, _, _ := p.env(start, 0)
				e.Now = func() time.Time { return now }
				if err := e.begin(t, run); err != nil {
					if !strings.Contains(err.Error(), test.want) {
						t.Errorf("start %d: %v, want %s", start, err, test.want)
					}
					return
				}
				log := filepath.Join(run.LogsPath(start+1), "n1.0.out")
				err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o700), os.WriteFile(log, nil, 0o600),
					os.Chtimes(log, now, now.Add(test.lived)))
				if err != nil {
					t.Fatal(err)
				}
				now = now.Add(10 * time.Hour)
			}
			t.Error("goes on for ever")
		})
	}
}

// An agent writes its verdict early and its line of the ledger late. If it dies between the two, the attempt has still ended, and the batch
// script completes the ledger.
func TestAttemptEndCompletesTheLedger(t *testing.T) {
	for _, early := range []bool{true, false} {
		p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
		p.Says("scontrol.out", fakeslurm.RunningFacts)
		e, _, _ := p.env(0, 1)
		v := rundir.Verdict{Attempt: 1, JobID: "12", Cause: "crash", Exit: 7, Host: "n2", Time: time.Now()}
		err := errors.Join(e.begin(t, run), run.WriteVerdict(v))
		if !early {
			err = errors.Join(err, run.Append(v.Event()))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := e.end(t, run, SrunEnd{Code: 7}); exitCode(err) != 7 {
			t.Errorf("exit code %d: %v", exitCode(err), err)
		}
		if got, want := fakeslurm.Events(t, run), []string{"begin", "end", "give-up"}; !slices.Equal(got, want) {
			t.Errorf("early %t: ledger %q, want %q", early, got, want)
		}
	}
}
