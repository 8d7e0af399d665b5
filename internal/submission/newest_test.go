package submission

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

// describe lists what is known about a submission.
func describe(s *Submission) string {
	var said []string
	if s.Open != nil {
		said = append(said, "open")
	}
	if s.First {
		said = append(said, "first")
	}
	if s.Job != "" {
		said = append(said, "job "+s.Job)
	}
	if s.Alive != nil {
		said = append(said, "alive "+s.Alive.ID)
	}
	if s.Asked != nil {
		said = append(said, "asked in vain")
	}
	return strings.Join(said, ", ")
}

func TestNewestKnowsWhatWasSubmitted(t *testing.T) {
	for name, test := range map[string]struct {
		before string
		queue  string // "silent": Slurm does not answer
		always bool
		want   string
	}{
		"killed at once":                   {"", "500 PENDING", false, "open, first, job 500"},
		"killed at once, no job":           {"", "", false, "open, first"},
		"recorded":                         {"submit job 400; jobid 400", "silent", false, ""},
		"recorded, and runs":               {"submit job 400; jobid 400", "400 RUNNING", true, ""},
		"recorded, and another by hand":    {"submit job 400", "450 RUNNING; 400 FAILED", true, "alive 450"},
		"recorded, and another has ended":  {"submit job 400", "450 FAILED; 400 FAILED", true, ""},
		"recorded in the file alone":       {"jobid 400", "400 RUNNING", true, "first"},
		"recorded, Slurm is asked in vain": {"submit job 400", "silent", true, "asked in vain"},
		"lost":                             {"submit job 400; submitting", "400 FAILED; 500 PENDING", false, "open, job 500"},
		"lost, and two are alive":          {"submit job 400; submitting", "99 RUNNING; 500 PENDING", false, "open, job 500, alive 99"},
		"lost, and a newer one has ended":  {"submitting", "500 PENDING; 501 CANCELLED", false, "open, first, job 500"},
		"lost, and has ended":              {"submitting", "500 CANCELLED; 499 FAILED", false, "open, first, job 500"},
		"lost, an array":                   {"submitting", "500_[2-3] PENDING; 500_1 RUNNING", false, "open, first, job 500"},
		"lost, Slurm does not answer":      {"submit job 400; submitting", "silent", false, "open, asked in vain"},
		"lost, and has begun":              {"submit job 400; submitting; begin 500", "silent", false, "open, job 500"},
		"begun, another by hand":           {"submitting; begin 500", "500 RUNNING; 501 PENDING", true, "open, first, job 500, alive 501"},
		"killed, and in the file":          {"submit job 400; submitting; jobid 500", "silent", false, "open, job 500"},
		"refused":                          {"submit job 400; submitting; not-taken", "400 FAILED", false, ""},
		"too late: nobody's":               {"submit job 400; submitting; too-late 500", "500 PENDING", false, "open"},
		"too late, beside another": {"submit job 400; submitting; too-late 500", "500 PENDING; 501 PENDING",
			false, "open, job 501"},
		"too late, and alive":             {"submit job 501; too-late 500", "500 PENDING; 501 FAILED", true, ""},
		"twice, and the first is unknown": {"submitting; submitting; resume job 501", "500 RUNNING", true, "alive 500"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.before(test.before)
			if test.queue == "silent" {
				w.Says("squeue.err", fakeslurm.Silence)
			} else {
				w.QueueOf(w.run, list(test.queue)...)
			}
			s, err := Newest(t.Context(), w.run, test.always, AskUserJobs(w.env().Slurm))
			w.Must(err)
			if got := describe(s); got != test.want {
				t.Errorf("%q, want %q: %+v", got, test.want, s)
			}
		})
	}
}

// Jobs of other scripts do not belong to the run. For a run that was never submitted to Slurm, Slurm is not asked.
func TestNewestKnowsItsScript(t *testing.T) {
	w := newWorld(t)
	w.QueueOf(fakeslurm.Run(t, ""), "500 PENDING")
	s, err := Newest(t.Context(), w.run, true, AskUserJobs(w.env().Slurm))
	if err != nil || s.Job != "" || s.Alive != nil || s.Asked != nil {
		t.Errorf("%+v, %v", s, err)
	}
	run := fakeslurm.RunOf(t, "simulate", "/bin/true", "")
	s, err = Newest(t.Context(), run, true, func(context.Context, string, string) (slurm.UserJobs, error) {
		t.Error("Slurm was asked")
		return nil, nil
	})
	if err != nil || s.Open != nil || s.Run != run {
		t.Errorf("%+v, %v", s, err)
	}
}

// If the ledger cannot be read, the run can still be looked at, but it cannot be submitted.
func TestNewestReadsARunWithoutALedger(t *testing.T) {
	w := newWorld(t)
	w.Must(os.Mkdir(filepath.Join(w.run.Path(), "ledger.jsonl"), 0o700))
	for _, always := range []bool{false, true} {
		s, err := Newest(t.Context(), w.run, always, AskUserJobs(w.env().Slurm))
		if (err != nil) != always || err == nil && s.Open != nil {
			t.Errorf("always %v: %+v, %v", always, s, err)
		}
	}
	if calls := w.Calls(); len(calls) > 0 {
		t.Errorf("Slurm was asked: %q", calls)
	}
}

// If the owner of the run is unknown, Slurm is not asked for the caller's own jobs.
func TestNewestNeedsTheOwnerOfTheRun(t *testing.T) {
	w := newWorld(t)
	s := &Submission{Run: w.run}
	w.Must(os.RemoveAll(w.run.Path()))
	err := s.ask(t.Context(), AskUserJobs(w.env().Slurm), []string{""}, func(string) bool { return false })
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read the owner of the run: ") {
		t.Error(err)
	}
	if calls := w.Calls(); len(calls) > 0 {
		t.Errorf("Slurm was asked: %q", calls)
	}
}
