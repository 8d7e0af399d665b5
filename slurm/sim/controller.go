package sim

import (
	"context"
	"slices"
	"syscall"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/slurm"
)

// Event is something that Slurm does to a running job.
type Event string

const (
	Cancelled Event = "cancel"  // scancel(1); scontrol requeue sends the same
	TimeLimit Event = "timeout" // the job's time is over
	Preempted Event = "preempt" // the nodes are wanted by another job
	Warned    Event = "warn"    // the time of sbatch's --signal has come
)

// Target is what signals go to: the tasks of a step ([Running]).
type Target interface{ Signal(syscall.Signal) }

// Controller plays slurmctld's part for one run of a job: it sends what Slurm 22.05 was seen to send, in that
// order. Slurm 25.11 sends the same.
type Controller struct {
	Tasks    Target
	Batch    Target        // the batch script
	KillWait time.Duration // between TERM and KILL (slurm.conf, KillWait)
	// GraceTime is what preempted jobs have between the first TERM and the hard one (slurm.conf, GraceTime of the partition or
	// QOS).
	GraceTime time.Duration
	Warning   slurm.Warning // what sbatch's --signal asked for; the zero value: B:USR2, as ddpbatch's scripts do
}

// delivery is what an event sends at one moment.
type delivery struct {
	after        time.Duration // since the event
	tasks, batch []syscall.Signal
}

const (
	cont = syscall.SIGCONT
	term = syscall.SIGTERM
	kill = syscall.SIGKILL
)

// schedule is what an event sends, and when. The order of CONT and TERM differs between runs of Slurm; that the tasks get TERM
// twice at the time limit and at the end of a preemption's grace does not.
func (c Controller) schedule(e Event) []delivery {
	once, twice, end := []syscall.Signal{cont, term}, []syscall.Signal{term, cont, term}, []syscall.Signal{kill}
	switch e {
	case Cancelled:
		return []delivery{{0, once, once}, {c.KillWait, end, end}}
	case TimeLimit:
		return []delivery{{0, twice, once}, {c.KillWait, end, end}}
	case Preempted:
		return []delivery{{0, once, nil}, {c.GraceTime, twice, once}, {c.GraceTime + c.KillWait, end, end}}
	case Warned:
		switch w := c.Warning; {
		case w.Signal == 0:
			return []delivery{{0, nil, []syscall.Signal{cont, syscall.SIGUSR2}}}
		case w.Batch:
			return []delivery{{0, nil, []syscall.Signal{cont, w.Signal}}}
		default:
			return []delivery{{0, []syscall.Signal{cont, w.Signal}, nil}}
		}
	}
	return nil
}

// Play sends what the event sends, until the last of it or until ctx ends, which should be when the job does.
func (c Controller) Play(ctx context.Context, e Event) {
	begin := time.Now()
	for _, b := range c.schedule(e) {
		if pause.For(ctx, b.after-time.Since(begin)) != nil {
			return
		}
		if slices.Contains(b.tasks, kill) { // the script must not take its tasks' end for one of theirs
			deliver(c.Batch, b.batch)
			deliver(c.Tasks, b.tasks)
			continue
		}
		deliver(c.Tasks, b.tasks)
		deliver(c.Batch, b.batch)
	}
}

func deliver(to Target, signals []syscall.Signal) {
	for _, sig := range signals {
		to.Signal(sig)
	}
}
