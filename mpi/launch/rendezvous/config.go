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

// Config configures a rendezvous.
type Config struct {
	Identity
	World
	Network
	Admission

	Builtin    bool // the workers are ddpbatch's own: agent 0 serves a store for them
	TorchStore bool // agent 0 serves PyTorch's store at MASTER_PORT

	Deadline     time.Time                                    // of the job, for the first layout; zero: none, or unknown
	FindDeadline func(ctx context.Context) (time.Time, error) // called if Deadline is zero; may be nil

	Log *slog.Logger

	joinBy    time.Time // see joinEnd
	id        string    // see joinRequest
	portTaken bool      // a process on this machine listens at the endpoint's port: agent 0, or another program
}

// MaxWorld is the largest world size.
const MaxWorld = store.MaxWorld

// Identity is the run that an agent belongs to, and its attempt.
type Identity struct {
	RunID    string
	TorchID  string // the workers' TORCHELASTIC_RUN_ID, which several runs may share; "": RunID
	JobID    string // for the verdict
	Secret   auth.Secret
	Attempt  int         // claimed by the caller; 0: none
	Restarts int         // how often the job was restarted before; for the workers
	RunDir   *rundir.Dir // for logs and the verdict; nil: they are not written
	Version  string      // of the program; all agents must have the same
}

// World is one agent among all of a run. In agent mode the agent has Nproc workers, and ranks are contiguous by agent. In task mode
// it has the workers of Local, whose ranks are fixed beforehand.
type World struct {
	Index         int            // this agent's number among the agents of the run; -1: it gets one at the rendezvous, see Network.Endpoint
	Count         int            // how many agents there are: one per node, or in task mode one per task
	Host          string         // this node's name, for logs and messages
	Hosts         []string       // every agent's node name, if known, for messages
	AgentsPerNode map[string]int // in place of Hosts, if no more is known: how many agents each node has
	Nproc         int
	Local         []RankNumbers
}

// Network is where the agents of a run find each other: at MasterAddr, on the first of Ports that agent 0 could bind. A single
// agent does not use it.
type Network struct {
	MasterAddr  string
	MasterGiven bool  // workers get MasterAddr as it is; otherwise they get the address by which their agent reached agent 0
	MasterPort  int   // for the workers; 0: agent 0 finds a free one
	Ports       []int // at which agents may meet
	// Ranges are the ranges that Ports come from, and from which agent 0 takes ports for the workers. If there are any, agent 0
	// listens at one of Ports even with Exchange.
	Ranges     PortRanges
	OneMachine bool   // the nodes are simulated on this machine, and have loopback addresses
	Interface  string // network to meet and communicate on (see reach); "": the one that routes to the peer

	// Endpoint (host:port) is where agents without a number (Index -1) meet. The agent that can bind it is agent 0. The others are
	// numbered as they come.
	Endpoint string
	DialOnly bool // with Endpoint: another agent is agent 0, even if this one could bind it

	// Exchange gives every agent the text that agent 0 passed, if agents have another way to exchange a text than the rendezvous
	// (PMI-2). All agents call it once. It returns when all have called it, or ctx ends. Texts have at most MaxOffer bytes. Agent 0
	// then publishes by it the port at which it listens, and the secret, if Secret is zero. The kernel chooses that port unless
	// Ranges is set, and Ports are not needed. All agents must come, so MinCount cannot be less than Count. nil: there is no such
	// way.
	Exchange func(ctx context.Context, mine string) (string, error)
	// Resolve looks up a host's addresses; nil: net.Resolver's LookupNetIP.
	Resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Admission is how many agents are expected, and how long to wait for them.
type Admission struct {
	// MinCount is the fewest agents that the run begins with, and goes on with after others were lost; 0: Count. Once so many have
	// come, the others have LastCall (0: 30 s) to come. Agents that come later join at the next restart.
	MinCount    int
	LastCall    time.Duration
	JoinTimeout time.Duration // for all agents to come; 0: 5 min; package launch adds Checking
	Checking    time.Duration // by how much agents may come later than others, because they check their nodes first
	// Reject is why this agent cannot take part; nil: it can. Run reports it to the other agents, and then returns it.
	Reject error
}

// joinEnd is when the agents' time to meet is over. That time begins now, unless it began with the search for the endpoint's name.
func (c Config) joinEnd() time.Time {
	if c.joinBy.IsZero() {
		return time.Now().Add(c.JoinTimeout)
	}
	return c.joinBy
}

// hostOf returns the best known name of an agent's node.
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
