package clean

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// cleanerOf returns a Cleaner of the folder that a run is in. Its clock is one year ahead.
func cleanerOf(p *fakeslurm.Slurm, run *rundir.Dir) *Cleaner {
	client := &slurm.Client{Environ: []string{"PATH=" + p.Dir + ":/usr/bin:/bin"}}
	log := slog.New(slog.DiscardHandler)
	runs := filepath.Dir(run.Path())
	return &Cleaner{
		Env:  submission.Env{Hostname: "login", Now: func() time.Time { return time.Now().AddDate(1, 0, 0) }, Log: log, Slurm: client},
		View: &runview.Viewer{Slurm: client, Now: time.Now, From: text.Dir(runs), Out: io.Discard, Err: io.Discard, Log: log},
		Runs: runs, Older: 24 * time.Hour,
	}
}

// ended returns a run whose attempt ended badly in job 12. Slurm has forgotten the job, and the ledger has further events.
func ended(t *testing.T, p *fakeslurm.Slurm, events ...rundir.Event) *rundir.Dir {
	t.Helper()
	p.WithoutAccounting()
	run := fakeslurm.Run(t, "")
	p.Must(run.SetJobID("12"))
	p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 12"}))
	n, err := run.ClaimAttempt()
	p.Must(err)
	p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "12"}))
	v := rundir.Verdict{Attempt: n, JobID: "12", Cause: "preempt", Exit: 1, Message: "it was preempted", Time: time.Now()}
	p.Must(run.WriteVerdict(v))
	p.Must(run.Append(v.Event()))
	for _, e := range events {
		e.Time = time.Now()
		p.Must(run.Append(e))
	}
	return run
}

// A run that has ended may be removed. A run stays if Slurm says nothing about a job that it was to start, because that job may wait in a
// queue that is not visible from here.
func TestRunsThatMayGoOnStay(t *testing.T) {
	for name, test := range map[string]struct {
		events []rundir.Event
		queue  []string
		goes   bool
	}{
		"given up":                    {[]rundir.Event{{Event: rundir.EventGiveUp, Attempt: 1}}, nil, true},
		"requeued":                    {[]rundir.Event{{Event: rundir.EventRequeue, Attempt: 1}}, nil, false},
		"requeued, and Slurm did not": {[]rundir.Event{{Event: rundir.EventRequeue}, {Event: rundir.EventRefused}}, nil, true},
		"requeued, and cancelled":     {[]rundir.Event{{Event: rundir.EventRequeue}, {Event: rundir.EventCancel, Job: "12"}}, nil, true},
		"requeued, and has ended":     {[]rundir.Event{{Event: rundir.EventRequeue}}, []string{"12 FAILED"}, true},
		"requeued, and waits":         {[]rundir.Event{{Event: rundir.EventRequeue}}, []string{"12 PENDING Priority"}, false},
		"resumed":                     {[]rundir.Event{{Event: rundir.EventResume, Detail: "job 12"}}, nil, false},
		"the next link":               {[]rundir.Event{{Event: rundir.EventLinkEnd}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeslurm.New(t)
			run := ended(t, p, test.events...)
			p.QueueOf(run, test.queue...)
			chosen, err := cleanerOf(p, run).Choose(t.Context())
			if err != nil || (len(chosen) == 1) != test.goes {
				t.Errorf("%+v, %v", chosen, err)
			}
		})
	}
}

// A run that has changed since the person was asked stays, and Remove says why.
func TestRemoveLooksOnceMore(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(p *fakeslurm.Slurm, run *rundir.Dir)
		why       string
	}{
		"nothing":  {func(*fakeslurm.Slurm, *rundir.Dir) {}, ""},
		"requeued": {func(p *fakeslurm.Slurm, run *rundir.Dir) { p.QueueOf(run, "12 PENDING Priority") }, "its state is now PENDING"},
		"submitted": {func(p *fakeslurm.Slurm, run *rundir.Dir) {
			_, err := run.Claim("login", rundir.EventResume, time.Now())
			p.Must(err)
		}, "another"},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeslurm.New(t)
			run := ended(t, p)
			c := cleanerOf(p, run)
			chosen, err := c.Choose(t.Context())
			if err != nil || len(chosen) != 1 {
				t.Fatalf("%+v, %v", chosen, err)
			}
			test.meanwhile(p, run)
			gone, err := c.Remove(t.Context(), chosen)
			_, statErr := os.Lstat(run.Path())
			isGone := slices.ContainsFunc(gone, func(r Run) bool { return r.Dir.Path() == run.Path() })
			if removed := test.why == ""; isGone != removed || (statErr != nil) != removed || (err == nil) != removed {
				t.Errorf("gone: %v; %v; %v", gone, statErr, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.why) {
				t.Errorf("it stays as %v", err)
			}
		})
	}
}

// If the ledger has no recent events, the age of a run is that of its ranks' files.
func TestARunIsAsYoungAsItsFiles(t *testing.T) {
	p := fakeslurm.New(t)
	run := ended(t, p)
	c := cleanerOf(p, run)
	late := c.Env.Now().Add(-time.Hour)
	p.Must(os.WriteFile(run.MetricsPath(), []byte("{}\n"), 0o600))
	p.Must(os.Chtimes(run.MetricsPath(), late, late))
	if chosen, err := c.Choose(t.Context()); err != nil || len(chosen) != 0 {
		t.Errorf("%+v, %v", chosen, err)
	}
}
