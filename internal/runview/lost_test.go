package runview

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

// Job 400 of a run has ended, and a command that resumed the run was killed before it recorded the result. The new job is known by its
// begin, however long ago Slurm has forgotten it, and otherwise by the run's script. While another command submits the run, or Slurm cannot
// be asked, status does not say that the run has no job.
func TestStatusFindsALostJob(t *testing.T) {
	for name, test := range map[string]struct {
		begun   bool // job 500 has begun
		crashed bool // job 500 has crashed
		claimed bool // another command is submitting the run
		silent  bool // Slurm does not answer
		first   bool // the submission was the first: job 400 does not exist
		queue   []string
		want    string // job and state
		ended   bool
		next    string
	}{
		"waits":        {queue: []string{"400 CANCELLED", "500 PENDING"}, want: "500 PENDING"},
		"has begun":    {begun: true, queue: []string{"400 CANCELLED", "500 RUNNING"}, want: "500 RUNNING"},
		"is forgotten": {begun: true, crashed: true, queue: []string{"400 CANCELLED"}, want: "500 FAILED", ended: true},
		"is not there": {
			queue: []string{"400 CANCELLED"}, want: "400 CANCELLED", ended: true,
			next: "a resume was cut short, and Slurm has no job of this run; to submit it: ddpbatch resume ",
		},
		"may come yet": {
			claimed: true, queue: []string{"400 CANCELLED"}, want: "400 CANCELLED",
			next: "it is being submitted: " + fakeslurm.OtherClaimWords,
		},
		"Slurm is silent":               {silent: true},
		"the first waits":               {first: true, queue: []string{"500 PENDING"}, want: "500 PENDING"},
		"the first is not there":        {first: true, want: " UNSUBMITTED", ended: true, next: "a submit was cut short"},
		"the first may come yet":        {first: true, claimed: true, want: " SUBMITTING", next: "it is being submitted: "},
		"the first, Slurm being silent": {first: true, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, run := fakeslurm.New(t), fakeslurm.Run(t, "")
			p.WithoutAccounting()
			if !test.first {
				p.Must(run.SetJobID("400"))
				p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 400"}))
			}
			fakeslurm.CutShort(t, run)
			if test.begun {
				n, err := run.ClaimAttempt()
				p.Must(err)
				p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "500"}))
			}
			if test.crashed {
				p.Must(run.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "500", Cause: "crash", Exit: 7, Message: "rank 0 crashed"}))
			}
			if test.claimed {
				fakeslurm.ClaimByOther(t, run)
			}
			if test.silent {
				p.Says("squeue.err", fakeslurm.Silence)
			} else {
				p.QueueOf(run, test.queue...)
			}
			before := fakeslurm.Events(t, run)
			row, err := viewerOf(p).Status(t.Context(), run)
			switch {
			case test.silent:
				if !errors.Is(err, slurm.ErrUnreachable) {
					t.Errorf("%+v, %v", row, err)
				}
			case err != nil || row.Job+" "+row.State != test.want || row.Ended != test.ended || !strings.HasPrefix(row.Next, test.next) ||
				(test.next == "") != (row.Next == ""):
				t.Errorf("%+v, %v; want %s", row, err, test.want)
			}
			if after := fakeslurm.Events(t, run); !slices.Equal(after, before) {
				t.Errorf("status has written: %q", after)
			}
		})
	}
}

// However many runs of a user have a submission that was cut short, Slurm is asked only once for the jobs of their scripts.
func TestStatusesAskOnceForLostJobs(t *testing.T) {
	p := fakeslurm.New(t)
	var runs []*rundir.Dir
	answers := map[string]string{"squeue.out": "", "squeue-user.out": ""}
	for i := range 3 {
		run := fakeslurm.Run(t, "")
		p.Must(run.SetJobID("400"))
		p.Must(run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 400"}))
		fakeslurm.CutShort(t, run)
		p.QueueOf(run, fmt.Sprintf("50%d PENDING", i))
		for name := range answers {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			p.Must(err)
			answers[name] += string(text)
		}
		runs = append(runs, run)
	}
	for name, text := range answers {
		p.Says(name, text)
	}
	rows, err := viewerOf(p).Statuses(t.Context(), runs)
	p.Must(err)
	for i, row := range rows {
		if want := fmt.Sprintf("50%d", i); row.Job != want || row.State != "PENDING" {
			t.Errorf("run %d: %+v; want job %s", i, row, want)
		}
	}
	calls := p.Calls()
	if len(calls) != 2 || strings.Count(strings.Join(calls, "\n"), " --me ") != 1 {
		t.Errorf("ran %q", calls)
	}
}
