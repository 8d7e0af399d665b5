package recovery

import (
	"math"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// Cause is the reason why an attempt ended (verdict.json's "cause").
type Cause string

// The causes. A * marks those that a job file's [requeue] may name.
const (
	Done Cause = "done"
	// Saved means that the workers stopped by themselves or because of a stop file, and ask to be started again (exit 75).
	// Verdict.Saved reports whether all of them saved.
	Saved     Cause = "stopped"
	Preempt   Cause = "preempt"   // * Slurm wants the nodes for another job
	Timeout   Cause = "timeout"   // * the time limit
	Node      Cause = "node"      // * a node, or its agent, went away
	Hang      Cause = "hang"      // * no progress
	OOM       Cause = "oom"       // * out of memory
	Crash     Cause = "crash"     // * a worker exited with another code than 0, or was killed by a signal
	Cancelled Cause = "cancelled" // a person ended it: scancel, Ctrl-C
	Start     Cause = "start"     // a worker could not be started, or the agents did not meet
	Unknown   Cause = "unknown"   // no agent lived to report the end
)

// Causes lists the causes that [requeue] may name, in the order in which they are shown to people.
func Causes() []Cause { return []Cause{Preempt, Timeout, Node, Hang, OOM, Crash} }

// Unlimited is a budget that cannot be used up.
const Unlimited = math.MaxInt

// Budget is the default of how many requeues a cause may take over the life of a run. It applies only if Policy.On names the cause.
//
// Preemption is not the run's fault. A run that its time limit cuts off 20 times needs a person's attention, if only to raise the
// limit. 5 lost nodes or 3 hangs are more than chance. A run that is out of memory will be so again on the same nodes, except for
// leaks: it gets one more try. A crash may come from the network or a file system, and three requeues outlast that. A bug ends the
// run at once unless On names crash.
func (c Cause) Budget() int {
	switch c {
	case Preempt, Saved:
		return Unlimited
	case Timeout:
		return 20
	case Node:
		return 5
	case Hang, Crash:
		return 3
	case OOM:
		return 1
	}
	return 0
}

// defaultNoProgress is the default of Policy.NoProgress.
const defaultNoProgress = 3

// Policy decides what follows an attempt that did not finish the run: the [requeue] table of a job, and launch.max_restarts.
type Policy struct {
	// MaxRestarts is how often the agents restart the workers within one job (torchrun's --max-restarts), whatever the cause. 0:
	// never. They are counted apart from requeues.
	MaxRestarts int `json:"max_restarts,omitempty"`

	On   []Cause       `json:"on,omitempty"`  // causes after which the batch script requeues the job
	Max  map[Cause]int `json:"max,omitempty"` // requeues that each cause may take over the life of the run; absent: Cause.Budget
	Lead time.Duration `json:"lead"`          // the least time before its end at which the job is warned: see LeadFor
	// NoProgress is the number of attempts in a row without progress after which the run gives up, whatever its budgets; 0: the
	// default of 3.
	NoProgress int `json:"no_progress"`
	// Chain reports whether the job is a link of a chain, in which the next link goes on after the time limit.
	Chain bool `json:"-"`
	// Limit is the time limit of the job; 0: none, or unknown.
	Limit time.Duration `json:"-"`
}

// DefaultPolicy is the policy of a job without [requeue]: it requeues after what the cluster did, and stops after the run's own failures.
func DefaultPolicy() Policy {
	return Policy{On: []Cause{Preempt, Timeout, Node}, Lead: 2 * time.Minute, NoProgress: defaultNoProgress}
}

// Budget is how many requeues a cause may take over the life of the run. It is 0 if On does not name the cause.
func (p Policy) Budget(c Cause) int {
	if c != Saved && !p.Names(c) {
		return 0
	}
	return p.budget(c)
}

// budget is Budget for a cause that On names, or that is requeued anyway because the workers ask for it.
func (p Policy) budget(c Cause) int {
	if most, given := p.Max[c]; given {
		return most
	}
	return c.Budget()
}

// Names reports whether the job is to be requeued after c.
func (p Policy) Names(c Cause) bool { return slices.Contains(p.On, c) }

// minLifetime is how long an attempt must last to count as progress if its steps are not counted. An attempt that saved needs less
// if the job's limit does not leave it much more.
func (p Policy) minLifetime(saved bool) time.Duration {
	if saved && p.Limit > 0 {
		return min(defaultMinLifetime, p.Limit/2)
	}
	return defaultMinLifetime
}

// maxStalled is the number of attempts without progress after which the run gives up.
func (p Policy) maxStalled() int {
	if p.NoProgress < 1 {
		return defaultNoProgress
	}
	return p.NoProgress
}

const (
	leadMemory = 5 // warned attempts that count: a file system that hung once is forgotten after a while
	leadGrowth = 4 // the most, in multiples of Policy.Lead, for attempts that did not end by themselves

	signalBlur = 2 * time.Second // on top of earlyWarning: Slurm's times are whole seconds
)

// LeadFor returns how long before the job's end an attempt is to be warned: Lead, or 1.5 times what an earlier attempt took from
// its warning until its workers had ended, if that is more. In that case longest is that attempt's time; otherwise it is 0. A lead
// longer than Lead is at most half of limit, which is how much time the job has left at the moment, or may take in all; 0: unknown.
//
// An attempt that went on until it was told to end, usually by the time limit, may have needed still longer. But its program may
// also be one that ignores the warning, which should not be warned ever earlier. So its time counts, but does not raise the lead
// beyond a few times Lead.
func (p Policy) LeadFor(attempt int, ledger []rundir.Event, limit time.Duration) (lead, longest time.Duration) {
	if p.Lead <= 0 {
		return 0, 0
	}
	lead = p.Lead
	known := map[int]bool{}
	for _, e := range slices.Backward(ledger) {
		if e.Event != rundir.EventEnd || e.Attempt >= attempt || e.WarnedS <= 0 || known[e.Attempt] {
			continue
		}
		if known[e.Attempt] = true; len(known) > leadMemory {
			break
		}
		took := time.Duration(e.WarnedS * float64(time.Second))
		if needs := p.leadAfter(e, took); needs > lead {
			lead, longest = needs, took
		}
	}
	if most := max(p.Lead, limit/2); limit > 0 && lead > most {
		lead = most
	}
	if lead == p.Lead {
		longest = 0
	}
	return lead, longest
}

// AfterSignal returns how long to hold back a signal by which Slurm announces the job's end, if left is the time until that end and
// a warning lead before it is soon enough. 0 means to pass the signal on at once. Slurm sends it early by at most a known time: a
// signal that comes sooner has another reason.
func AfterSignal(left, lead time.Duration) time.Duration {
	early := left - lead
	if lead <= 0 || early <= 0 || early > earlyWarning+signalBlur {
		return 0
	}
	return early
}

// leadAfter is the lead that an attempt would have needed if it took that long after its warning.
func (p Policy) leadAfter(end rundir.Event, took time.Duration) time.Duration {
	needs := took + took/2
	switch {
	case !end.Saved && Cause(end.Cause) != Timeout: // it failed, or a person ended it
		return 0
	case !end.Saved || end.Signal != 0:
		return min(needs, leadGrowth*p.Lead)
	}
	return needs
}
