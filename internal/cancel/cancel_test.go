package cancel

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// cancels cancels by a name, and checks which jobs were canceled and what the error says. Marks are the jobs that the run's ledger records
// as canceled by a person.
func cancels(t *testing.T, p *fakeslurm.Slurm, run *rundir.Dir, name string, want, marks []string, says string) (err error) {
	t.Helper()
	parent := filepath.Dir(run.Whole().Path())
	client, log := &slurm.Client{Environ: p.Environ(0, 0)}, slog.New(slog.DiscardHandler)
	c := Canceller{
		Env:  submission.Env{Hostname: "login1", Now: time.Now, Log: log, Slurm: client},
		View: &runview.Viewer{Slurm: client, Now: time.Now, From: text.Dir(parent), Out: io.Discard, Err: io.Discard, Log: log},
		Runs: parent,
	}
	before := len(p.Calls())
	of, done, err := c.Cancel(t.Context(), name)
	asked := slices.DeleteFunc(p.Calls()[before:], func(call string) bool { return !strings.HasPrefix(call, "scancel ") })
	if !slices.Equal(done, want) || len(done) > 0 && of.Whole().Path() != run.Whole().Path() {
		t.Errorf("cancelled are %q of %v, want %q; ran %q", done, of, want, asked)
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said == "" && says != "" || said != "" && says == "" || !strings.Contains(said, says) {
		t.Errorf("error %q, want %q", said, says)
	}
	history, err2 := run.Ledger()
	if err2 != nil {
		t.Fatal(err2)
	}
	var marked []string
	for _, e := range history {
		if e.Event == rundir.EventCancel {
			marked = append(marked, e.Job)
		}
	}
	if !slices.Equal(marked, marks) {
		t.Errorf("marked as cancelled are %q, want %q", marked, marks)
	}
	return err
}

// misused reports whether the error is a misuse of the command line.
func misused(err error) bool {
	_, ok := errors.AsType[*usage.Error](err)
	return ok
}

// Of several jobs one is over, one is canceled, and one cannot be canceled. The error also reports what was done. The job whose cancel
// scancel refused stays marked, so that it is not started again.
func TestCancelDoesWhatItCanOfSeveral(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	a.Submitted("12")
	a.Ran(0, "12", 0)
	one, two := a.Ran(1, "12", 3), a.Ran(2, "12", 3)
	a.Submitted("13", one)
	a.Submitted("14", two)
	a.Queue("12_0 COMPLETED", "12_3 COMPLETED", "13_1 RUNNING", "14_2 RUNNING")
	a.First("scancel", `[ "$1" != 14 ] || { echo 'scancel: error: Access/permission denied' >&2; exit 1; }`)
	err := cancels(t, a.Slurm, a.Run, a.Run.Path(), []string{"13"}, []string{"13", "14"},
		"Access/permission denied (the run is marked as cancelled, so it will not be requeued until it is resumed)")
	if misused(err) || strings.Contains(err.Error(), "job 12") {
		t.Errorf("%v", err)
	}
}

// When one element of an array is resumed alone, the array has two jobs: the run directory names both, a job ID only one.
func TestCancelByJobIDSparesTheOtherJob(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	a.Submitted("12")
	a.Ran(0, "12", 0)
	one := a.Ran(1, "12", 3)
	a.Submitted("13", one)
	var all []string
	over := func(name, says string) {
		t.Helper()
		if err := cancels(t, a.Slurm, a.Run, name, nil, all, says); !misused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ends := func(name string, want ...string) {
		t.Helper()
		all = append(all, want...)
		cancels(t, a.Slurm, a.Run, name, want, all, "")
	}
	a.Queue("12_0 RUNNING", "12_[2-3] PENDING", "13_1 RUNNING")
	ends("12", "12")
	ends("13", "13")
	ends(a.Run.Path(), "12", "13")
	a.Queue("12_0 RUNNING", "12_[2-3] PENDING", "13_1 COMPLETED")
	ends(a.Run.Path(), "12")
	const alone = "job 13 has ended already: COMPLETED; there is nothing to cancel"
	over("13", alone)
	a.Queue("12_0 COMPLETED", "12_2 COMPLETED", "12_3 COMPLETED", "13_1 RUNNING")
	ends(a.Run.Path(), "13")
	const since = "with what was resumed since as job 13: "
	over("12", "job 12 has ended already: COMPLETED ("+since+"3 of 4 elements are done); there is nothing to cancel")
	a.Queue("12_0 COMPLETED", "12_2 COMPLETED", "12_3 COMPLETED", "13_1 COMPLETED")
	over(a.Run.Path(), "job 12 has ended already: COMPLETED ("+since+"all 4 elements are done); there is nothing to cancel\n"+alone)
	a.Ran(1, "13", 0)
	a.Queue("12_0 COMPLETED", "12_1 FAILED", "12_2 COMPLETED", "12_3 COMPLETED", "13_1 COMPLETED") // the element that failed is done since
	over("12", "job 12 has ended already: FAILED ("+since+"all 4 elements are done); there is nothing to cancel")
	asked := slices.DeleteFunc(a.Calls(), func(call string) bool { return !strings.HasPrefix(call, "scancel ") })
	if got, want := strings.Join(asked, " "), "scancel "+strings.Join(all, " scancel "); got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
}

// A cancel of a job that has ended changes nothing, neither in the ledger nor in Slurm, and says how it ended.
func TestCancelOfAnEndedJobChangesNothing(t *testing.T) {
	crash := func(job, message string) rundir.Verdict {
		return rundir.Verdict{Attempt: 1, JobID: job, Cause: "crash", Exit: 7, Message: message}
	}
	const ended = "job 12 has ended already: "
	for name, test := range map[string]struct {
		verdict rundir.Verdict
		queue   string // "": Slurm has forgotten it
		want    string
	}{
		"failed": {
			crash("12", "rank 1 exited with code 7"), "12 FAILED", ended + "FAILED (rank 1 exited with code 7); there is nothing to cancel",
		},
		"forged": {
			crash("12", "rank 1\x1b[2J\nddpbatch: all is well"), "12 FAILED",
			ended + "FAILED (rank 1 [2J ddpbatch: all is well); there is nothing to cancel",
		},
		"forgotten": {
			rundir.Verdict{Attempt: 1, JobID: "12", Cause: "done", Message: "done"}, "",
			ended + "COMPLETED (done); there is nothing to cancel",
		},
		"never began": {rundir.Verdict{}, "12 CANCELLED", ended + "CANCELLED; there is nothing to cancel"},
		"of before":   {crash("11", "rank 1"), "12 CANCELLED", ended + "CANCELLED; there is nothing to cancel"},
		"renamed": {
			rundir.Verdict{}, "12 RUNNING None other",
			"job 12 is named \"other\" in Slurm, but this run is named \"x\": the job may belong to another run; " +
				"if the job is this run's: scancel 12",
		},
		"somebody's": {
			rundir.Verdict{}, "12 COMPLETED None other", ended + "how is not known, because it left no verdict; there is nothing to cancel",
		},
		"it still runs": {crash("12", "rank 1 exited with code 7"), "12 RUNNING", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
			p.Must(run.SetJobID("12"))
			if test.verdict.Attempt > 0 {
				_, err := run.ClaimAttempt()
				p.Must(errors.Join(err, run.WriteVerdict(test.verdict)))
			}
			if test.queue != "" {
				p.QueueOf(run, test.queue)
			} else {
				p.Says("scontrol.err", "slurm_load_jobs error: Invalid job id specified")
				p.Says("sacct", "#!/bin/sh\n")
			}
			var done []string
			if test.want == "" {
				done = []string{"12"}
			}
			err := cancels(t, p, run, run.Path(), done, done, test.want)
			if err != nil && (!misused(err) || err.Error() != test.want) {
				t.Errorf("%v; want %s", err, test.want)
			}
			if called := slices.Contains(p.Calls(), "scancel 12"); called != (test.want == "") {
				t.Errorf("scancel was called: %v", called)
			}
		})
	}
}

// If Slurm does not say whether a job is over, the cancel marks the job and does nothing else.
func TestCancelWithoutAnAnswerIsMarked(t *testing.T) {
	p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	p.Must(run.SetJobID("12"))
	p.Says("squeue.err", fakeslurm.Silence)
	cancels(t, p, run, "12", nil, []string{"12"}, "marked as cancelled")
}

// A waiting element has no directory, so its cancel is recorded in the array's ledger. Naming an element that the array does not have
// cancels nothing.
func TestCancelOfAWaitingElementIsRecorded(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-3")
	a.Submitted("12")
	a.Ran(0, "12", 0)
	a.Queue("12_0 COMPLETED", "12_[1-3] PENDING")
	cancels(t, a.Slurm, a.Run, "12_2", []string{"12_2"}, []string{"12_2"}, "")
	cancels(t, a.Slurm, a.Run, filepath.Join(a.Run.Path(), "tasks", "3"), []string{"12_3"}, []string{"12_2", "12_3"}, "")
	for name, says := range map[string]string{
		"12_4": "element 4 does not exist", "13_1": "13_1", filepath.Join(a.Run.Path(), "tasks", "4"): "array element 4 does not exist",
	} {
		if err := cancels(t, a.Slurm, a.Run, name, nil, []string{"12_2", "12_3"}, says); !misused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := a.Calls(); !slices.Contains(calls, "scancel 12_2") || !slices.Contains(calls, "scancel 12_3") {
		t.Errorf("ran %q", calls)
	}
}

// A job whose submission was cut short before it was recorded is now recorded, and canceled together with the jobs that are known.
func TestCancelRecordsALostJob(t *testing.T) {
	p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	submitted := rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 12"}
	p.Must(errors.Join(run.SetJobID("12"), run.Append(submitted)))
	fakeslurm.CutShort(t, run)
	p.Says("squeue.err", fakeslurm.Silence)
	if err := cancels(t, p, run, run.Path(), nil, nil, "look for the job of "); misused(err) || !errors.Is(err, slurm.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	p.Must(os.Remove(filepath.Join(p.Dir, "squeue.err")))
	fakeslurm.ClaimByOther(t, run)
	underWay := " is being submitted just now: " + fakeslurm.OtherClaimWords + "; cancel it when that has ended"
	if err := cancels(t, p, run, run.Path(), nil, nil, underWay); !misused(err) {
		t.Errorf("%v", err)
	}
	p.QueueOf(run, "13 RUNNING")
	cancels(t, p, run, "12", []string{"13"}, []string{"13"}, "")
	if known, err := run.Submissions(); err != nil || known.Open != nil || !slices.Equal(known.Jobs, []string{"12", "13"}) {
		t.Errorf("submissions %+v, %v", known, err)
	}
}

func TestCancelWithoutAJobIsMisuse(t *testing.T) {
	p := fakeslurm.New(t)
	for kind, says := range map[string]string{
		"slurm":    "has no job: its submission was interrupted, and Slurm does not know a job of its script",
		"train":    "was started by hand, not submitted; press Ctrl-C where it runs",
		"simulate": "job 999999999 has ended already",
	} {
		run := fakeslurm.RunOf(t, kind, "/bin/true", "")
		if kind == "simulate" {
			p.Must(run.SetJobID("999999999"))
		}
		if err := cancels(t, p, run, run.Path(), nil, nil, says); !misused(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Canceling a simulated run sends SIGTERM to the process that simulates it. That process simulates all elements of an array, so one
// element alone cannot be canceled.
func TestCancelSignalsTheSimulation(t *testing.T) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	p, run := fakeslurm.New(t), fakeslurm.RunOf(t, "simulate", "/bin/true", "[slurm]\narray = \"1-2\"\n")
	id := fmt.Sprint(os.Getpid())
	element, err := run.Task(1)
	p.Must(errors.Join(err, run.SetJobID(id), element.SetJobID(id+"_1")))
	log, err := os.Create(run.SlurmLogPath(id + "_1")) // the log that shows that this process simulates the run
	p.Must(err)
	defer log.Close()
	all := "to cancel them all: ddpbatch cancel " + filepath.Base(run.Path())
	if err := cancels(t, p, element, element.Path(), nil, nil, all); !misused(err) {
		t.Errorf("%v", err)
	}
	cancels(t, p, run, run.Path(), []string{id}, []string{id}, "")
	testkit.Within(t, testkit.Patience, func() { <-signals })
	if len(signals) > 0 {
		t.Error("the process got the signal twice: for the element, too")
	}
}

// Root cancels another user's run whose submission was not recorded, and records nothing but the cancel.
func TestRootCancelsALostJob(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can cancel another user's run")
	}
	p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	give := func(path string) error { return os.Lchown(path, 4242, 4242) }
	fakeslurm.CutShort(t, run)
	p.Must(errors.Join(run.SetJobID("12"), give(run.Path()), give(filepath.Join(run.Path(), "ledger.jsonl"))))
	p.QueueOf(run, "13 RUNNING")
	cancels(t, p, run, run.Path(), []string{"13"}, []string{"13"}, "")
	if id, err := run.JobID(); id != "12" || err != nil {
		t.Errorf("recorded is %q, %v", id, err)
	}
	if calls := p.Calls(); !strings.Contains(calls[0], " --users=4242 ") {
		t.Errorf("ran %q", calls)
	}
	if got := fakeslurm.Events(t, run); !slices.Equal(got, []string{rundir.EventSubmitting, rundir.EventCancel}) {
		t.Errorf("ledger %q", got)
	}
}
