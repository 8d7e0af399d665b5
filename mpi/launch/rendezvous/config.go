package rendezvous

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/store"
)

// Config is what a rendezvous needs to know.
type Config struct {
	Identity
	World
	Network
	Admission

	Builtin    bool // the workers are ddpbatch's own: agent 0 serves a store for them
	TorchStore bool // agent 0 serves PyTorch's store at MASTER_PORT

	Deadline     time.Time                                    // of the job, which the first layout has; zero: none, or not known
	FindDeadline func(ctx context.Context) (time.Time, error) // is asked where Deadline is zero; nil: nobody can be

	Log *slog.Logger

	joinBy    time.Time // see joinEnd
	id        string    // see joinRequest
	portTaken bool      // somebody on this machine has the endpoint's port: agent 0, or another program
}

// MaxWorld is the most ranks that a world may have.
const MaxWorld = store.MaxWorld

// Identity is the run that an agent belongs to, and its attempt.
type Identity struct {
	RunID    string
	TorchID  string // the workers' TORCHELASTIC_RUN_ID, which several runs may share; "": RunID
	JobID    string // for the verdict
	Secret   auth.Secret
	Attempt  int         // claimed by the caller; 0: none
	Restarts int         // of the job, before this one; for the workers
	RunDir   *rundir.Dir // where logs and the verdict go; nil: nowhere
	Version  string      // of the program; all agents must have the same
}

// World is one agent among all of a run. In agent mode it has Nproc workers, and ranks are contiguous by agent; in task mode it has the
// workers of Local, whose ranks are fixed beforehand.
type World struct {
	Index         int            // this agent's number among the agents of the run; -1: it gets one at the rendezvous, see Network.Endpoint
	Count         int            // how many there are: one a node, or in task mode one a task
	Host          string         // this node's name, for logs and messages
	Hosts         []string       // every agent's node name, where known, for messages
	AgentsPerNode map[string]int // in place of Hosts, where only that is known: how many agents each node has
	Nproc         int
	Local         []RankNumbers
}

// Network is where the agents of a run find each other: at MasterAddr, on the first of Ports that agent 0 could bind. A single agent
// needs none of it.
type Network struct {
	MasterAddr  string
	MasterGiven bool  // workers get MasterAddr as it is written, and otherwise the address by which their agent reached agent 0
	MasterPort  int   // for the workers; 0: agent 0 finds a free one
	Ports       []int // that agents meet at
	// Ranges are what Ports are from, and where agent 0 takes ports for the workers. If there are any, agent 0 listens at one of Ports
	// with Exchange, too.
	Ranges     PortRanges
	OneMachine bool   // the nodes are pretended ones of this machine, and have loopback addresses
	Interface  string // network to meet and communicate on (see reach); "": the one that routes to the peer

	// Endpoint, where Index is -1, is where agents meet that have no number yet (host:port): the one that can bind it is
	// agent 0, and the others are numbered as they come.
	Endpoint string
	DialOnly bool // with Endpoint: another agent is agent 0, even if this one could bind it

	// Exchange gives every agent what agent 0 passed, where they have another way to exchange a word than the rendezvous (PMI-2): all
	// agents call it once, and it returns when all have, or ctx ends. Texts have at most MaxOffer bytes. Agent 0 then tells by it where
	// it listens, on a port that the kernel chose unless Ranges says otherwise, and the secret, where Secret is zero; Ports are not needed.
	// All agents must come, so MinCount cannot be less than Count. nil: there is none.
	Exchange func(ctx context.Context, mine string) (string, error)
	// Resolve looks up a host's addresses; nil: net.Resolver's LookupNetIP.
	Resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Admission is how many agents come, and how long they are waited for.
type Admission struct {
	// MinCount is the fewest agents that the run begins with, and goes on with after others were lost; 0: Count. Once
	// so many are there, the others have LastCall (0: 30 s) to come; who comes later joins at the next restart.
	MinCount    int
	LastCall    time.Duration
	JoinTimeout time.Duration // for all agents to come; 0: 5 min; package launch adds Checking
	Checking    time.Duration // by how much agents may come later than others, as they check their nodes first
	// Reject is why this agent cannot take part, which Run tells the other agents before it returns it; nil: it can.
	Reject error
}

// joinEnd is when the agents' time to meet is over, where that begins now, or began with the search for the endpoint's name.
func (c Config) joinEnd() time.Time {
	if c.joinBy.IsZero() {
		return time.Now().Add(c.JoinTimeout)
	}
	return c.joinBy
}

// hostOf names the node of another agent as well as it is known.
func (c Config) hostOf(index int) string {
	switch {
	case index == c.Index:
		return c.Host
	case index < len(c.Hosts):
		return c.Hosts[index]
	case index == 0:
		return c.MasterAddr
	}
	return unnamed
}

const unnamed = "an unnamed node"

// who names this agent.
func (c Config) who() string {
	if c.Index < 0 {
		return "the agent on " + c.Host
	}
	return fmt.Sprintf("agent %d on %s", c.Index, c.Host)
}
