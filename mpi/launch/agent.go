package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/recovery"
)

const (
	defaultGrace       = 60 * time.Second
	defaultJoinTimeout = 5 * time.Minute
	defaultLastCall    = 30 * time.Second // as torchrun's last_call_timeout
	defaultPeerWait    = time.Second
	defaultWarnSignal  = syscall.SIGUSR2
	maxWorld           = 1 << 20 // ranks; more is a slip of the pen
)

// AgentConfig is what one agent needs to know. All agents of a run must have the same, but for World, Warn, Reject and where output goes.
type AgentConfig struct {
	Identity  // which run this is
	World     // which agent this is, and which ranks are its own
	Network   // where the agents find each other
	Admission // how many come, and how long they are waited for
	Workers   // what the workers run
	Devices   // which cores and GPUs they get
	Limits    // how long they may take
	JobEnd    // when the job ends, and how workers are warned of it
	Streams   // where their output goes

	Policy recovery.Policy // what follows a failure
	Log    *slog.Logger    // nil: nowhere

	joinBy    time.Time // see joinEnd
	id        string    // see joinRequest
	portTaken bool      // somebody on this machine has the endpoint's port: agent 0, or another program
}

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

// World is one agent among all of a run. In agent mode it has Nproc workers, and ranks are contiguous by agent; in task mode it has the workers
// of Local, whose ranks are fixed beforehand.
type World struct {
	Index  int            // this agent's number among the agents of the run; -1: it gets one at the rendezvous, see Network.Endpoint
	Count  int            // how many there are: one a node, or in task mode one a task
	Host   string         // this node's name, for logs and messages
	Hosts  []string       // every agent's node name, where known, for messages
	Layout map[string]int // in place of Hosts, where only that is known: how many agents each node has
	Nproc  int
	Local  []Place
}

// Network is where the agents of a run find each other: at MasterAddr, on the first of Ports that agent 0 could bind. A single agent needs none
// of it.
type Network struct {
	MasterAddr  string
	MasterGiven bool   // workers get MasterAddr as it is written, and otherwise the address by which their agent reached agent 0
	MasterPort  int    // for the workers; 0: agent 0 finds a free one
	Ports       []int  // that agents meet at
	OneMachine  bool   // the nodes are pretended ones of this machine, and have loopback addresses
	Interface   string // network to meet and communicate on (see reach); "": the one that routes to the peer

	// Endpoint, where Index is -1, is where agents meet that have no number yet (host:port): the one that can bind it is
	// agent 0, and the others are numbered as they come.
	Endpoint string
	Guest    bool // with Endpoint: another agent is agent 0, even if this one could bind it

	// Exchange gives every agent what agent 0 passed, where they have another way to exchange a word than the rendezvous (PMI-2): all agents
	// call it once, and it returns when all have, or ctx ends. Texts have at most MaxOffer bytes. Agent 0 then tells by it where it
	// listens, on a port that the kernel chose, and the secret, where Secret is zero; Ports are not needed. All agents must come, so
	// MinCount cannot be less than Count. nil: there is none.
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
	JoinTimeout time.Duration // for all agents to come; 0: 5 min
	// Declines is why this agent cannot take part, which Run tells the other agents before it returns it; nil: it can.
	Declines error
}

// Workers is what the workers run.
type Workers struct {
	Command     []string
	Env         []string // what workers inherit, as in os.Environ
	Dir         string   // where workers run; "": where the agent does
	Builtin     bool     // the workers are ddpbatch's own: they get the secret
	Role        string   // ROLE_NAME; "": "default"
	MaxRestarts int      // for the workers to know
	TorchStore  bool     // agent 0 serves PyTorch's TCPStore at MASTER_PORT, and all tell their workers so; only agent 0's value counts

	CheckpointDir string // for the workers to know; "": RunDir's own
	StopFile      string // the same

	// Sweep has processes ended that left their worker, at the end of each round and of this process. The program must serve
	// proc.GuardCommand (proc.ServeGuard), since it is started again as a guard.
	Sweep bool
}

// Devices is which cores and GPUs the workers get; see device.Request.
type Devices struct {
	GPUs, NUMA, OMP  string
	VirtualLocalRank bool
	CPUsPerTask      int
}

// Limits is how long workers may take.
type Limits struct {
	Grace     time.Duration // between TERM and KILL; 0: 60 s
	TermGrace time.Duration // in place of Grace, where it is shorter, once this run is told to stop: whoever tells may kill soon; 0: Grace
	HangAfter time.Duration // workers without a sign of life for so long hang; 0: never
	PeerWait  time.Duration // for the end of a peer of which a worker's last words say that it was lost; 0: 1 s
}

// JobEnd is when the job ends, and how workers are warned of it.
type JobEnd struct {
	Deadline time.Time // zero: none, or not known
	// FindDeadline is asked by agent 0 where Deadline is zero, and once more when the time has come to warn: it may have moved. nil: it
	// has not.
	FindDeadline func(ctx context.Context) (time.Time, error)
	Warn         <-chan struct{} // receives when this agent got a warning
	WarnSignal   syscall.Signal  // forwarded on a warning, to workers that have a handler; 0: USR2
}

// Streams is where the workers' output goes.
type Streams struct {
	Output         output.Config
	LogDir         string    // torchrun's --log-dir; "": the run directory's logs
	Stdout, Stderr io.Writer // whole lines of all workers; nil: nowhere
}

// withDefaults checks c and fills in what was left out.
func (c AgentConfig) withDefaults() (AgentConfig, error) {
	if err := c.check(); err != nil {
		return c, fmt.Errorf("agent %d of %d: %w", c.Index, c.Count, err)
	}
	if c.Index < 0 {
		host, port, err := splitEndpoint(c.Endpoint)
		if err != nil {
			return c, err
		}
		c.MasterAddr, c.Ports = host, []int{port}
	}
	if c.MasterAddr == "" {
		c.MasterAddr = loopback
	}
	if c.MinCount == 0 {
		c.MinCount = c.Count
	}
	if c.LastCall == 0 {
		c.LastCall = defaultLastCall
	}
	if c.WarnSignal == 0 {
		c.WarnSignal = defaultWarnSignal
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.TermGrace == 0 {
		c.TermGrace = c.Grace
	}
	if c.JoinTimeout == 0 {
		c.JoinTimeout = defaultJoinTimeout
	}
	if c.PeerWait == 0 {
		c.PeerWait = defaultPeerWait
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupNetIP
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.RunDir != nil && c.CheckpointDir == "" {
		c.CheckpointDir = c.RunDir.CheckpointsPath()
	}
	if c.RunDir != nil && c.StopFile == "" {
		c.StopFile = c.RunDir.StopPath(c.Attempt)
	}
	return c, nil
}

func (c AgentConfig) check() error {
	switch {
	case c.Count < 1 || c.Index >= c.Count || c.Index < 0 && c.Endpoint == "":
		return errors.New("there is no such agent")
	case c.MinCount < 0 || c.MinCount > c.Count:
		return fmt.Errorf("the run cannot go on with %d agents or more", c.MinCount)
	case len(c.Local) > 0 && (c.Index < 0 || c.MinCount != 0 && c.MinCount != c.Count):
		return errors.New("ranks that are fixed beforehand need every agent, and a number for each")
	case c.Host == "":
		return errors.New("the node has no name")
	case len(c.Command) == 0 || c.Command[0] == "":
		return errors.New("there is no command to run")
	case c.MasterPort < 0 || c.MasterPort > 65535:
		return fmt.Errorf("master port %d is not between 1 and 65535", c.MasterPort)
	case c.Exchange != nil && (c.Index < 0 || c.MinCount != 0 && c.MinCount != c.Count):
		return errors.New("agents that exchange a word before they meet have numbers, and all of them come")
	case c.Count > 1 && c.Index >= 0 && (c.MasterAddr == "" || len(c.Ports) == 0 && c.Exchange == nil):
		return errors.New("several agents need the address of agent 0 and ports to meet at")
	case len(c.Hosts) != 0 && len(c.Hosts) != c.Count:
		return fmt.Errorf("%d hosts are named", len(c.Hosts))
	case c.Attempt < 0 || c.RunDir != nil && c.Attempt == 0:
		return errors.New("a run directory needs a claimed attempt")
	case c.Grace < 0 || c.TermGrace < 0 || c.JoinTimeout < 0 || c.LastCall < 0:
		return errors.New("a time limit is negative")
	}
	return c.checkWorkers()
}

func (c AgentConfig) checkWorkers() error {
	if len(c.Local) == 0 {
		if c.Nproc < 1 || c.Nproc > maxWorld {
			return fmt.Errorf("%d workers on this node: at least one is needed", c.Nproc)
		}
		return nil
	}
	if c.Nproc != 0 {
		return errors.New("the number of workers is given twice")
	}
	for _, p := range c.Local {
		if p.WorldSize < 1 || p.WorldSize > maxWorld || p.Rank < 0 || p.Rank >= p.WorldSize ||
			p.LocalRank < 0 || p.LocalRank >= p.LocalWorldSize || p.NodeRank < 0 || p.NodeRank >= p.Nodes {
			return fmt.Errorf("there is no such place in the world: %+v", p)
		}
	}
	return nil
}

// joinEnd is when the agents' time to meet is over, where that begins now, or began with the search for the endpoint's name.
func (c AgentConfig) joinEnd() time.Time {
	if c.joinBy.IsZero() {
		return time.Now().Add(c.JoinTimeout)
	}
	return c.joinBy
}

// hostOf names the node of another agent as well as it is known.
func (c AgentConfig) hostOf(index int) string {
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
func (c AgentConfig) who() string {
	if c.Index < 0 {
		return "the agent on " + c.Host
	}
	return fmt.Sprintf("agent %d on %s", c.Index, c.Host)
}
