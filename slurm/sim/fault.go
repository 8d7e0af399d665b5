package sim

import (
	"fmt"
	"time"
)

// Kind is what a fault does.
type Kind string

const (
	Kill      Kind = "kill"      // a rank gets SIGKILL
	Stop      Kind = "stop"      // a rank gets SIGSTOP, and CONT after "for", if that is given
	Slow      Kind = "slow"      // a rank is stopped for a share of the time
	Term      Kind = "term"      // the job is preempted
	Timeout   Kind = "timeout"   // the job's time limit is reached, "lead" after a warning
	Warn      Kind = "warn"      // the warning before the time limit comes, and the limit does not
	NodeDies  Kind = "node"      // a node is gone, with all of its processes
	AgentDies Kind = "agent"     // the agent of a node gets SIGKILL
	Partition Kind = "partition" // a node is cut off the network, and lives on
	NoSpace   Kind = "nospace"   // the disk of the checkpoints is full, for "for", if that is given
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind  Kind
	Rank  int           // of kill, stop, slow
	Node  string        // of node, agent, partition: a name, or a number from 0
	For   time.Duration // of stop, slow, nospace; 0: for good
	Lead  time.Duration // of timeout; 0: no warning
	Share float64       // of slow: the part of the time in which the rank does not run
	// Everybody: of warn: not the batch script alone gets the signal but the tasks, too (sbatch --signal=USR2@lead and B:USR2@lead in one).
	Everybody bool

	// When it strikes: at once where none of them is set.
	Step    int64         // as soon as the metrics tell of this step; 0: no matter
	Time    time.Duration // since the job began to run; 0: no matter
	Attempt int           // in this attempt of the run only; 0: in whichever it happens

	Text string // as it was written
}

// defaultShare of slow: a rank that runs for a tenth of the time.
const defaultShare = 0.9

// maxFault bounds the text of a fault, and so of its errors.
const maxFault = 200

// FaultError says what is wrong with the text of a fault, and where.
type FaultError struct {
	Text    string
	Column  int // of the first wrong byte, from 1
	Problem string
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("fault %q, column %d: %s", e.Text, e.Column, e.Problem)
}

// String is the fault as it was written.
func (f Fault) String() string { return f.Text }

// OnRank tells whether the fault is one of a single rank.
func (f Fault) OnRank() bool { return f.Kind == Kill || f.Kind == Stop || f.Kind == Slow }

// OnNode tells whether the fault is one of a single node.
func (f Fault) OnNode() bool {
	return f.Kind == NodeDies || f.Kind == AgentDies || f.Kind == Partition
}
