package recovery

import (
	"math"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

// Cause is why an attempt ended (verdict.json's "cause").
type Cause string

// The causes. Those that a job file's [requeue] may name are marked with *.
const (
	Done Cause = "done"
	// the workers stopped by themselves or by a stop file, and ask to be started again (exit 75); whether all saved is Verdict.Saved
	Saved     Cause = "stopped"
	Preempt   Cause = "preempt"   // * Slurm wants the nodes for another job
	Timeout   Cause = "timeout"   // * the time limit
	Node      Cause = "node"      // * a node, or its agent, went away
	Hang      Cause = "hang"      // * no progress
	OOM       Cause = "oom"       // * out of memory
	Crash     Cause = "crash"     // * a worker exited with another code than 0, or was killed by a signal
	Cancelled Cause = "cancelled" // a person ended it: scancel, Ctrl-C
	Start     Cause = "start"     // a worker could not be started, or the agents did not meet
	Unknown   Cause = "unknown"   // nobody lived to say
)

// Causes are those that [requeue] may name, in the order in which people are told of them.
func Causes() []Cause { return []Cause{Preempt, Timeout, Node, Hang, OOM, Crash} }

// Unlimited is a budget that is never used up.
const Unlimited = math.MaxInt

// Budget is how many requeues a cause may take over the life of a run where its job does not say. It counts only
// where Policy.On names the cause.
//
// Preemption is no fault of the run's. A run that is cut off by its time limit 20 times needs a person's look,
// if only at the limit; 5 lost nodes or 3 hangs are more than chance. Memory that ran out runs out again
// on the same nodes, but for leaks: one more try. A crash may be the network's or a file
// system's; three requeues see that through, and a bug stops at once where On does not name it.
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

// defaultNoProgress is Policy.NoProgress where a job does not say.
const defaultNoProgress = 3

// Policy is what a run does after an attempt that is not done: the [requeue] table of a job, and launch.max_restarts.
type Policy struct {
	// MaxRestarts is how often the agents start the workers again within one job (torchrun's
	// --max-restarts), whatever the cause. 0: never. These restarts count apart from requeues.
	MaxRestarts int `json:"max_restarts,omitempty"`

	On   []Cause       `json:"on,omitempty"`  // causes after which the batch script requeues the job
	Max  map[Cause]int `json:"max,omitempty"` // requeues that each cause may take over the life of the run; absent: Cause.Budget
	Lead time.Duration `json:"lead"`          // how long before its end the job is warned, at least: see LeadFor
	// NoProgress is after how many attempts in a row that came no further the run gives up, whatever its budgets;
	// 0: the default of 3.
	NoProgress int `json:"no_progress"`
	// Chain tells that the job is a link of a chain: the next one goes on after the time limit.
	Chain bool `json:"-"`
	// Limit is the time limit of the job; 0: none, or not known.
	Limit time.Duration `json:"-"`
}

// DefaultPolicy is that of a job that says nothing: it outlives what clusters do, and stops at what is its own.
func DefaultPolicy() Policy {
	return Policy{On: []Cause{Preempt, Timeout, Node}, Lead: 2 * time.Minute, NoProgress: defaultNoProgress}
}

// Budget is how many requeues a cause may take over the life of the run: 0 where On does not name it.
func (p Policy) Budget(c Cause) int {
	if c != Saved && !p.Names(c) {
		return 0
	}
	return p.budget(c)
}

// budget is Budget of a cause that On names, or that is requeued though it does not, as workers wish for that.
func (p Policy) budget(c Cause) int {
	if most, given := p.Max[c]; given {
		return most
	}
	return c.Budget()
}

// Names reports whether the job is to be requeued after c.
func (p Policy) Names(c Cause) bool { return slices.Contains(p.On, c) }

// minLifetime is how long an attempt must live to be believed that it got on, where nobody counts its steps. One that saved is believed
// sooner where the job's limit leaves it little more.
func (p Policy) minLifetime(saved bool) time.Duration {
	if saved && p.Limit > 0 {
		return min(defaultMinLifetime, p.Limit/2)
	}
	return defaultMinLifetime
}

// maxStalled is after how many attempts without progress the run gives up.
func (p Policy) maxStalled() int {
	if p.NoProgress < 1 {
		return defaultNoProgress
	}
	return p.NoProgress
}

const (
	leadMemory = 5 // attempts that were warned, and count: a file system that hung once is forgotten again
	leadGrowth = 4 // times Policy.Lead, for attempts that did not end by themselves

	signalBlur = 2 * time.Second // on top of earlyWarning: Slurm's times are whole seconds
)

// LeadFor is how long before the job's end an attempt is to be warned: Lead, or half as much again as an attempt before it took from
// its warning until its workers had ended, where that is more; longest is that attempt's time then, and else 0. Where it is more than Lead,
// it is no more than half of limit: how much of its time the job has left when that is asked, or may take in all; 0: not known.
//
// An attempt that went on until it was told to end, by the time limit as a rule, may have needed still longer. It may also be one of a
// program that goes on after a warning, which should not be warned ever earlier: its time counts, but the lead does not grow beyond a few
// times Lead for it.
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

// AfterSignal is how long a signal of Slurm's that says that the job's end is near need not be handed on, where so much is left until that
// end, and lead before it is soon enough; 0: it is to be handed on at once. Slurm is early, by no more than a known time: what comes
// sooner has another reason.
func AfterSignal(left, lead time.Duration) time.Duration {
	early := left - lead
	if lead <= 0 || early <= 0 || early > earlyWarning+signalBlur {
		return 0
	}
	return early
}

// leadAfter is the lead that an attempt would have needed which took so long after its warning.
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
