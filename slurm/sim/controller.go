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
	Preempted Event = "preempt" // another job gets the nodes
	Warned    Event = "warn"    // the time of sbatch's --signal has come
)

// Target receives signals: the tasks of a step ([Running]), or the batch script.
type Target interface{ Signal(syscall.Signal) }

// Controller sends the signals that slurmctld would send to one run of a job, in the order in which Slurm 22.05 was seen
// to send them. Slurm 25.11 sends the same.
type Controller struct {
	Tasks    Target
	Batch    Target        // the batch script
	KillWait time.Duration // between TERM and KILL (slurm.conf, KillWait)
	// GraceTime is the time between the first TERM of a preempted job and the TERM that begins its end (slurm.conf, GraceTime of
	// the partition or QOS).
	GraceTime time.Duration
	Warning   slurm.Warning // sbatch's --signal; the zero value: B:USR2, as in ddpbatch's scripts
}

// delivery holds the signals that an event sends at one moment.
type delivery struct {
	after        time.Duration // since the event
	tasks, batch []syscall.Signal
}

const (
	cont = syscall.SIGCONT
	term = syscall.SIGTERM
	kill = syscall.SIGKILL
)

// schedule returns what an event sends, and when. The order of CONT and TERM differs between runs of Slurm. The tasks always get TERM
// twice at the time limit and at the end of a preemption's grace time.
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

// Play sends the signals of the event. It returns after the last one or when ctx ends, which should be when the job does.
func (c Controller) Play(ctx context.Context, e Event) {
	begin := time.Now()
	for _, b := range c.schedule(e) {
		if pause.For(ctx, b.after-time.Since(begin)) != nil {
			return
		}
		if slices.Contains(b.tasks, kill) { // first the script, so that it does not see its tasks end and take that for their own failure
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
