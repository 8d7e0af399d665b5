package attempt

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// A verdict that exists but cannot be read stays as it is, and the ledger, Slurm and srun's exit code decide what follows. A verdict that a
// crash cut short holds no information, and is replaced.
func TestAttemptEndKeepsAVerdictThatItCannotRead(t *testing.T) {
	long, err := json.Marshal(rundir.Verdict{Attempt: 1, Cause: "stopped", Exit: 75, Saved: true, Report: strings.Repeat("x", 2<<20)})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text  []byte
		noted bool // the agents also wrote their line of the ledger
		kept  bool
		want  []string
		cause string // in the ledger
	}{
		"too long":                      {long, true, true, []string{"begin", "end", "requeue"}, "stopped"},
		"too long, and no line of it":   {long, false, true, []string{"begin", "end", "requeue"}, "unknown"},
		"of another ddpbatch":           {[]byte(`{"attempt": "first"}`), true, true, []string{"begin", "end", "requeue"}, "stopped"},
		"cut short by a crash":          {long[:100], false, false, []string{"begin", "end", "requeue"}, "unknown"},
		"nothing but zeros, by a crash": {make([]byte, 100), false, false, []string{"begin", "end", "requeue"}, "unknown"},
		"empty, as the disk was full":   {nil, false, false, []string{"begin", "end", "requeue"}, "unknown"},
		"cut short, and the line of it": {long[:100], true, false, []string{"begin", "end", "end", "requeue"}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			p.Says("scontrol.out", fakeslurm.RunningFacts)
			e, _, errs := p.env(0, 1)
			if err := e.begin(t, run); err != nil {
				t.Fatal(err)
			}
			if test.noted {
				v := fakeslurm.Saved
				v.Attempt, v.Time = 1, e.Now()
				if err := run.Append(v.Event()); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(run.Path(), "attempts", "1", "verdict.json")
			if err := os.WriteFile(path, test.text, 0o600); err != nil {
				t.Fatal(err)
			}
			err := e.end(t, run, SrunEnd{Code: 75})
			if exitCode(err) != exit.Requeue || strings.Contains(errs.String(), "leaving it as it is") != test.kept {
				t.Errorf("exit code %d (%v), want %d; said %s", exitCode(err), err, exit.Requeue, errs)
			}
			if text, err := os.ReadFile(path); err != nil || bytes.Equal(text, test.text) != test.kept {
				t.Errorf("verdict.json stayed as it was: %t, %v; want %t", bytes.Equal(text, test.text), err, test.kept)
			}
			history, err := run.Ledger()
			if err != nil || !slices.Equal(fakeslurm.Events(t, run), test.want) || history[len(history)-2].Cause != test.cause {
				t.Errorf("ledger %+v, %v; want %q and the cause %s", history, err, test.want, test.cause)
			}
		})
	}
}

// An unreadable verdict also stays as it is if the start that left it died with its node.
func TestAttemptBeginKeepsAVerdictThatItCannotRead(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
	e, _, _ := p.env(0, 0)
	if err := e.begin(t, run); err != nil {
		t.Fatal(err)
	}
	crash := rundir.Verdict{Attempt: 1, JobID: "12", Cause: "oom", Exit: 1, Message: "rank 3 ran out of memory", Time: e.Now()}
	if err := run.Append(crash.Event()); err != nil {
		t.Fatal(err)
	}
	path, text := filepath.Join(run.Path(), "attempts", "1", "verdict.json"), []byte(`{"attempt": "first"}`)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	e, _, errs := p.env(1, 0)
	if err := e.begin(t, run); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) || !strings.Contains(errs.String(), "leaving it as it is") {
		t.Errorf("verdict.json is %q, %v; said %s", got, err, errs)
	}
	history, err := run.Ledger()
	if want := []string{"begin", "end", "requeue", "begin"}; err != nil || !slices.Equal(fakeslurm.Events(t, run), want) ||
		history[2].Cause != "oom" {
		t.Errorf("ledger %+v, %v; want %q by the cause oom", history, err, want)
	}
}

// srun's KILL leaves no agent that could report anything. If no rank has a log and no verdict exists either, the workers were not started.
func TestAttemptEndKnowsAgentsThatNeverMet(t *testing.T) {
	for name, test := range map[string]struct{ file, text, cause string }{
		"no rank has begun":             {cause: "start"},
		"a rank has":                    {"logs/n1.0.out", "", "unknown"},
		"a verdict that cannot be read": {"verdict.json", `{"attempt": "first"}`, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			p.Says("scontrol.out", fakeslurm.RunningFacts)
			e, _, errs := p.env(0, 1)
			if err := e.begin(t, run); err != nil {
				t.Fatal(err)
			}
			if test.file != "" {
				if err := os.WriteFile(filepath.Join(run.Path(), "attempts", "1", test.file), []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.end(t, run, SrunEnd{Code: 137}); exitCode(err) != 137 {
				t.Errorf("exit code %d (%v), want srun's; said %s", exitCode(err), err, errs)
			}
			history, err := run.Ledger()
			if err != nil || len(history) < 2 || history[len(history)-2].Cause != test.cause {
				t.Errorf("ledger %+v, %v; want the cause %s", history, err, test.cause)
			}
		})
	}
}

// If a verdict cannot be read, the attempt's end in the ledger holds everything that decides what follows.
func TestVerdictOfEventKeepsWhatDecides(t *testing.T) {
	want := rundir.Verdict{
		Attempt: 2, JobID: "7", Cause: "crash", FirstRank: -1, Host: "n1", Exit: 1, Signal: 9, Step: 3,
		Message: "rank 0 ended", Saved: true,
		Nodes: []string{"n1"}, Error: "KeyError: lr", Class: "program", Advice: "add it", Final: true, Trace: "00ff", WarnedS: 1, LeadS: 2,
	}
	a := &Attempt{Number: 2, JobID: "7"}
	if got := a.verdictOfEvent(want.Event(), 1); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
