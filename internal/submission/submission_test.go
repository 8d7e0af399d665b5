package submission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// code returns the exit code that an error carries; 0: it carries none.
func code(err error) int {
	if coded, ok := errors.AsType[*exit.Error](err); ok {
		return coded.Code
	}
	return 0
}

func TestNoteBeginRecordsTheJob(t *testing.T) {
	for name, test := range map[string]struct {
		before  string
		begins  string
		code    int    // of the error; 0: no error
		message string // of the error
		left    string
	}{
		"recorded":          {"submit job 12; jobid 12", "12", 0, "", "submit job 12; jobid 12"},
		"an element":        {"submit job 12; jobid 12", "12_3", 0, "", "submit job 12; jobid 12"},
		"of the job before": {"submit job 12; resume job 13; jobid 13", "12_3", 0, "", "submit job 12; resume job 13; jobid 13"},
		"of the job before, beside a lost one": {"submit job 12; jobid 12; submitting", "12_3", 0, "",
			"submit job 12; submitting; jobid 12"},
		"the file alone":   {"jobid 12", "12", 0, "", "jobid 12"},
		"lost":             {"submit job 12; jobid 12; submitting", "13", 0, "", "submit job 12; submitting; resume job 13; jobid 13"},
		"lost, an element": {"submitting", "13_3", 0, "", "submitting; resume job 13; jobid 13"},
		"refused, and by hand": {"submit job 12; jobid 12; submitting; not-taken", "14", 0, "",
			"submit job 12; submitting; not-taken; jobid 14"},
		"by hand":             {"submit job 12; jobid 12", "14", 0, "", "submit job 12; jobid 14"},
		"by hand, an element": {"submit job 12; jobid 12", "14_1", 0, "", "submit job 12; jobid 12"},
		"too late": {"too-late 13; submitting", "13", exit.Never,
			"job 13 was submitted too late: another command had claimed the run; to continue:",
			"too-late 13; submitting"},
		"too late, an element": {"too-late 13; submitting", "13_1", exit.Never, "job 13 was submitted too late",
			"too-late 13; submitting"},
		"lost, and submitted since": {"submitting; submitting; resume job 500; jobid 500", "499", exit.Never,
			"job 499 was submitted by a command that was killed, and the run has been submitted as job 500 since; " +
				"to continue: ddpbatch resume ",
			"submitting; submitting; resume job 500; jobid 500"},
		"lost, submitted since, and the file is gone": {"submitting; submitting; resume job 500", "499_1", exit.Never, "as job 500 since",
			"submitting; submitting; resume job 500"},
		"lost, submitted since, and by hand": {"submitting; submitting; resume job 500; jobid 500", "1001", 0, "",
			"submitting; submitting; resume job 500; jobid 1001"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.before(test.before)
			err := w.env().NoteBegin(w.run, test.begins)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if code(err) != test.code || test.message == "" && said != "" || !strings.Contains(said, test.message) {
				t.Errorf("exit code %d: %v; want %d, %s", code(err), err, test.code, test.message)
			}
			w.wantLeft(w.run, test.left)
		})
	}
}

// A lost job of one element is recorded in the ledger of that element as well, and only once, whichever process begins or looks first.
func TestLostJobIsRecordedInItsElement(t *testing.T) {
	w := newWorld(t)
	w.before("submit job 12; jobid 12; submitting element 3")
	s, err := Newest(t.Context(), w.run, false, func(context.Context, string, string) (slurm.UserJobs, error) { return nil, nil })
	w.Must(err)
	if recorded, err := w.env().RecordLost(s); recorded || err != nil {
		t.Errorf("recorded without a job: %v, %v", recorded, err)
	}
	s.Job = "13"
	w.Must(w.env().NoteBegin(w.run, "13_3"))
	if recorded, err := w.env().RecordLost(s); !recorded || err != nil {
		t.Errorf("recorded: %v, %v", recorded, err)
	}
	w.wantLeft(w.run, "submit job 12; submitting element 3; resume job 13 element 3; jobid 13")
	element, err := w.run.Task(3)
	w.Must(err)
	w.wantLeft(element, "resume job 13")
}

func TestSubmitReportsWhatBecameOfIt(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*world) // after the claim
		sbatch  string       // shell lines
		id      string
		none    bool // nothing was submitted
		lost    bool // the claim is lost
		code    int
		says    string // in the error, or in the log if there is no error
		left    string
	}{
		"taken": {sbatch: "echo 500; exit 0", id: "500", left: "submitting; submit job 500; jobid 500"},
		"taken by another cluster": {
			sbatch: "echo '500;east'; exit 0", id: "500;east", left: "submitting; submit job 500; jobid 500 on east",
		},
		"another cluster's, and too late": {
			sbatch: "echo '500;east'; exit 0", lost: true, code: exit.Usage, says: "to cancel it: scancel --clusters=east 500",
			left: "submitting; too-late 500", prepare: func(w *world) { w.First("sbatch", w.LinesClaimByOther(w.run)) },
		},
		"taken, and sbatch fails": {
			sbatch: "echo 500; exit 1", id: "500", says: "sbatch printed the job ID, but then failed",
			left: "submitting; submit job 500; jobid 500",
		},
		"taken, and the job has begun": {
			sbatch: "echo 500; exit 0", id: "500", left: "submitting; begin 500; submit job 500; jobid 500",
			prepare: func(w *world) {
				now := w.env().Now().Format(time.RFC3339Nano)
				w.First("sbatch", fmt.Sprintf(`echo '{"time":"%s","event":"begin","job":"500"}' >>'%s/ledger.jsonl'`, now, w.run.Path()))
			},
		},
		"taken, and cannot be recorded": {
			sbatch: "echo 500; exit 0", id: "500", says: "the job is submitted, but its run directory could not be updated", left: "unread",
			prepare: func(w *world) { w.Must(os.MkdirAll(filepath.Join(w.run.Path(), "jobid", "x"), 0o700)) },
		},
		"refused": {
			sbatch: "echo 'sbatch: error: Invalid partition name specified' >&2; exit 1", none: true, says: "Invalid partition",
			left: "submitting; not-taken",
		},
		"unheard": {
			sbatch: "echo '" + fakeslurm.Silence + "' >&2; exit 1", none: true, says: "cannot reach", left: "submitting; not-taken",
		},
		"perhaps taken": {sbatch: "echo 'Zero Bytes were transmitted or received' >&2; exit 1", says: "Zero Bytes", left: "submitting"},
		"no answer":     {sbatch: "exit 0", says: "sbatch printed no job id", left: "submitting"},
		"the ledger cannot be written": {
			none: true, says: "nothing was submitted", left: "unread",
			prepare: func(w *world) { w.Must(os.Mkdir(filepath.Join(w.run.Path(), "ledger.jsonl"), 0o700)) },
		},
		"it cannot be told who has the claim": {
			none: true, says: "nothing was submitted: check the claim of the run",
			prepare: func(w *world) {
				claims := filepath.Join(w.run.Path(), "claims")
				w.Must(os.Rename(claims, claims+".away"))
				w.Must(os.WriteFile(claims, nil, 0o600))
			},
		},
		"the claim is lost": {
			none: true, lost: true, code: exit.Usage,
			says: "nothing was submitted: this process was stopped too long, and another command has claimed the run: " +
				fakeslurm.OtherClaimWords,
			prepare: func(w *world) { fakeslurm.ClaimByOther(w.t, w.run) },
		},
		"the claim is lost meanwhile": {
			sbatch: "echo 500; exit 0", lost: true, code: exit.Usage, left: "submitting; too-late 500",
			says: "job 500 was submitted too late: this process was stopped too long, and another command has claimed the run: " +
				fakeslurm.OtherClaimWords + "; to cancel it: scancel 500",
			prepare: func(w *world) { w.First("sbatch", w.LinesClaimByOther(w.run)) },
		},
		"the claim is lost meanwhile, refused": { // the other command reports what that means for the run
			sbatch: "echo 'Invalid partition' >&2; exit 1", none: true, lost: true, code: exit.Usage,
			says: "Invalid partition", left: "submitting",
			prepare: func(w *world) { w.First("sbatch", w.LinesClaimByOther(w.run)) },
		},
		"the claim is lost meanwhile, perhaps taken": {
			sbatch: "echo 'Zero Bytes were transmitted or received' >&2; exit 1",
			lost:   true, code: exit.Usage, says: "Zero Bytes", left: "submitting",
			prepare: func(w *world) { w.First("sbatch", w.LinesClaimByOther(w.run)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.First("sbatch", test.sbatch)
			release, claim, err := w.env().Claim(w.run, "submit")
			w.Must(err)
			defer release()
			if test.prepare != nil {
				test.prepare(w)
			}
			id, err := w.env().Submit(t.Context(), w.run, claim, []string{"--qos=x"}, rundir.Event{Detail: rundir.EventSubmit})
			said := w.log.String()
			if err != nil {
				said = err.Error()
			}
			if id.String() != test.id || code(err) != test.code || !strings.Contains(said, test.says) || test.says == "" && said != "" {
				t.Errorf("job %q, exit code %d: %s", id, code(err), said)
			}
			if lost := errors.Is(err, rundir.ErrClaimLost); lost != test.lost {
				t.Errorf("the claim is lost: %v", lost)
			}
			if none := err != nil && NotSubmitted(err); none != test.none {
				t.Errorf("nothing was submitted: %v", none)
			}
			if calls := w.Calls(); test.sbatch == "" && len(calls) > 0 {
				t.Errorf("ran %q", calls)
			}
			if test.left != "unread" {
				w.wantLeft(w.run, test.left)
			}
		})
	}
}

// Submit reports the variables that it does not pass on to sbatch.
func TestSubmitReportsWhatItDrops(t *testing.T) {
	w := newWorld(t)
	w.First("sbatch", "echo 500; exit 0")
	e := w.env()
	release, claim, err := e.Claim(w.run, "submit")
	w.Must(err)
	defer release()
	e.Dropped = []string{"SLURM_JOB_ID", "RANK"}
	if _, err := e.Submit(t.Context(), w.run, claim, nil, rundir.Event{Detail: rundir.EventSubmit}); err != nil {
		t.Error(err)
	}
	if said := w.log.String(); !strings.Contains(said, "sbatch does not get these") || !strings.Contains(said, "[SLURM_JOB_ID RANK]") {
		t.Errorf("said %s", said)
	}
}

func TestNotSubmitted(t *testing.T) {
	unreachable := func(words string) error {
		return fmt.Errorf("submit: %w", &slurm.UnreachableError{Command: "sbatch", Words: words})
	}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&slurm.RefusedError{Command: "sbatch", Code: 1, Words: "Invalid partition"}, true},
		{fmt.Errorf("sbatch: %w", slurm.ErrNoSlurm), true},
		{fmt.Errorf("%w: the disk is full", errNotAsked), true},
		{unreachable(fakeslurm.Silence), true},
		{unreachable("Unable to contact slurm controller (connect failure): Connection timed out"), false},
		{unreachable("Zero Bytes were transmitted or received"), false},
		{context.DeadlineExceeded, false},
		{errors.New("sbatch printed no job id"), false},
	} {
		if got := NotSubmitted(test.err); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

// In a folder that others can write to, with the sticky bit, other users can take the names of links to runs. That stops no job.
func TestTakenLinkNameStopsNoJob(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"500", "501", "502"} {
		w.Must(os.WriteFile(filepath.Join(filepath.Dir(w.run.Path()), ".job-x-"+id), nil, 0o600))
	}
	w.Must(w.env().Record(w.run, slurm.JobID{ID: "500"}, rundir.Event{Detail: rundir.EventSubmit}))
	w.Must(w.env().NoteBegin(w.run, "500"))
	w.wantLeft(w.run, "submit job 500; jobid 500")
	w.before("submitting")
	w.Must(w.env().NoteBegin(w.run, "501"))
	w.Must(w.env().NoteBegin(w.run, "502")) // submitted by hand
	w.wantLeft(w.run, "submit job 500; submitting; resume job 501; jobid 502")
	if said := w.log.String(); strings.Count(said, "the run can only be found by its path, not by its job ID") != 3 {
		t.Errorf("said %s", said)
	}
}

// Only one process has the claim. If that process was killed, this is reported, and so is a failure to release the claim.
func TestClaimIsExclusive(t *testing.T) {
	w := newWorld(t)
	release, claim, err := w.env().Claim(w.run, "clean")
	w.Must(err)
	_, _, err = w.env().Claim(w.run, "resume")
	const held = "another command has claimed this run: clean by process "
	if used, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(used.Message, held) {
		t.Errorf("claimed twice: %v", err)
	}
	w.Must(CheckClaim(claim))
	release()
	release()
	fakeslurm.ClaimByOther(t, w.run)
	_, _, err = w.env().Claim(w.run, "resume")
	const lapses = fakeslurm.OtherClaimWords + "; wait for its end; if it was killed, its claim lapses within 2m0s"
	if err == nil || err.Error() != "another command has claimed this run: "+lapses {
		t.Errorf("claimed beside another command: %v", err)
	}
	if err := CheckClaim(claim); code(err) != exit.Usage || !errors.Is(err, rundir.ErrClaimLost) || !NotSubmitted(err) {
		t.Errorf("exit code %d: %v", code(err), err)
	}
	long := time.Now().Add(-time.Hour)
	w.Must(os.Chtimes(filepath.Join(w.run.Path(), "claims", "9", "claim.json"), long, long))
	release, _, err = w.env().Claim(w.run, "resume")
	w.Must(err)
	const dead = "an earlier command was killed while it had claimed this run"
	if said := w.log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, dead) ||
		!strings.Contains(said, fakeslurm.OtherClaimWords) {
		t.Errorf("said %s", said)
	}
	w.log.Reset()
	w.Must(os.RemoveAll(filepath.Join(w.run.Path(), "claims", "10", "claim.json")))
	w.Must(os.MkdirAll(filepath.Join(w.run.Path(), "claims", "10", "claim.json", "x"), 0o700))
	release()
	if said := w.log.String(); !strings.Contains(said, "the run stays claimed until this process ends") {
		t.Errorf("said %s", said)
	}
}
