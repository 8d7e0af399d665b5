package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/supervise"
)

const (
	defaultGrace       = 60 * time.Second
	defaultJoinTimeout = 5 * time.Minute
	defaultLastCall    = 30 * time.Second // as torchrun's last_call_timeout
	defaultPeerWait    = 3 * time.Second
	defaultWarnSignal  = syscall.SIGUSR2
)

// The groups of AgentConfig, and other types that a caller needs of the packages below this one.
type (
	Identity    = rendezvous.Identity
	World       = rendezvous.World
	RankNumbers = rendezvous.RankNumbers
	Network     = rendezvous.Network
	Admission   = rendezvous.Admission
	Workers     = supervise.Workers
	Container   = supervise.Container
	Devices     = supervise.Devices
	Limits      = supervise.Limits
	NodeChecks  = supervise.NodeChecks
	JobEnd      = supervise.JobEnd
	Streams     = supervise.Streams

	// SignalError is the cause with which the caller cancels Run's context when the agent gets a signal to stop.
	SignalError = rendezvous.SignalError
)

// MaxOffer is the longest text that agents pass through Network.Exchange, in bytes.
const MaxOffer = rendezvous.MaxOffer

// LocalRankMacro stands for a worker's LOCAL_RANK in the arguments of its command, as torchrun has it.
const LocalRankMacro = supervise.LocalRankMacro

// PortRanges are the ranges that ports are taken from, see rendezvous.PortRanges.
type PortRanges = rendezvous.PortRanges

// ParsePorts reads ranges of ports, such as "61000-65535".
func ParsePorts(text string) (PortRanges, error) { return rendezvous.ParsePorts(text) }

// Ports lists up to n ports of the default ranges, in an order that the seed decides, see rendezvous.PortRanges.
func Ports(seed string, n int) []int { return rendezvous.Ports(seed, n) }

// AgentConfig configures one agent. All agents of a run have the same configuration, except for numbers, hosts and ranks,
// DialOnly, the functions that ask Slurm, Warn, Reject, and where output goes.
type AgentConfig struct {
	Identity   // which run this is
	World      // which agent this is, and which ranks are its own
	Network    // where the agents find each other
	Admission  // how many come, and how long they are waited for
	Workers    // what the workers run
	Devices    // which cores and GPUs they get
	Limits     // how long they may take
	NodeChecks // what is checked on the node before they are started
	JobEnd     // when the job ends, and how workers are warned before
	Streams    // where their output goes

	Policy recovery.Policy // what follows a failure
	Log    *slog.Logger    // nil: log nothing
}

// rendezvousConfig is the part that the rendezvous needs.
func (c AgentConfig) rendezvousConfig() rendezvous.Config {
	return rendezvous.Config{
		Identity: c.Identity, World: c.World, Network: c.Network, Admission: c.Admission,
		Builtin: c.Builtin, TorchStore: c.TorchStore, Deadline: c.Deadline, FindDeadline: c.FindDeadline, Log: c.Log,
	}
}

// supervisorConfig is the part that the supervision of workers needs.
func (c AgentConfig) supervisorConfig() supervise.Config {
	return supervise.Config{
		Identity: c.Identity, World: c.World, Workers: c.Workers, Devices: c.Devices, Limits: c.Limits, NodeChecks: c.NodeChecks,
		JobEnd: c.JobEnd, Streams: c.Streams,
		MasterAddr: c.MasterAddr, OneMachine: c.OneMachine, Policy: c.Policy, Log: c.Log,
	}
}

// RankEnviron lists torchrun's variables, as NAME=value, for a rank that is not started by an agent: the
// task of an srun that is itself the rank with these numbers. It uses only MasterAddr, RunID and Restarts of c.
func (c AgentConfig) RankEnviron(n RankNumbers, masterPort int) []string {
	return c.supervisorConfig().RankEnviron(n, masterPort)
}

// withDefaults checks c and fills in what was left out.
func (c AgentConfig) withDefaults() (AgentConfig, error) {
	if err := c.check(); err != nil {
		return c, fmt.Errorf("agent %d of %d: %w", c.Index, c.Count, err)
	}
	if c.Index < 0 {
		host, port, err := rendezvous.SplitEndpoint(c.Endpoint)
		if err != nil {
			return c, err
		}
		c.MasterAddr, c.Ports = host, []int{port}
	}
	c.MasterAddr = cmp.Or(c.MasterAddr, rendezvous.Loopback)
	c.MinCount = cmp.Or(c.MinCount, c.Count)
	c.LastCall = cmp.Or(c.LastCall, defaultLastCall)
	c.WarnSignal = cmp.Or(c.WarnSignal, defaultWarnSignal)
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.TermGrace = cmp.Or(c.TermGrace, c.Grace)
	c.JoinTimeout = cmp.Or(c.JoinTimeout, defaultJoinTimeout)
	if len(c.Checks) > 0 {
		c.Checking = cmp.Or(c.CheckLimit, supervise.DefaultCheckLimit)
		c.JoinTimeout += c.Checking
	}
	c.PeerWait = cmp.Or(c.PeerWait, defaultPeerWait)
	c.Stdout, c.Stderr = cmp.Or(c.Stdout, io.Discard), cmp.Or(c.Stderr, io.Discard)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupNetIP
	}
	return c, nil
}

func (c AgentConfig) check() error {
	switch {
	case c.Count < 1 || c.Index >= c.Count || c.Index < 0 && c.Endpoint == "":
		return errors.New("an agent's number must be below their count, and not negative unless there is an endpoint")
	case c.MinCount < 0 || c.MinCount > c.Count:
		return fmt.Errorf("the fewest agents must be between 1 and %d, got %d", c.Count, c.MinCount)
	case len(c.Local) > 0 && (c.Index < 0 || c.MinCount != 0 && c.MinCount != c.Count):
		return errors.New("with ranks that are fixed beforehand, every agent must come, and have a number")
	case c.Host == "":
		return errors.New("the node's name is missing")
	case len(c.Command) == 0 || c.Command[0] == "":
		return errors.New("the workers' command is missing")
	case c.MasterPort < 0 || c.MasterPort > 65535:
		return fmt.Errorf("master port %d is not between 1 and 65535", c.MasterPort)
	case c.Exchange != nil && (c.Index < 0 || c.MinCount != 0 && c.MinCount != c.Count):
		return errors.New("with Exchange, every agent must come, and have a number")
	case c.Count > 1 && c.Index >= 0 && (c.MasterAddr == "" || len(c.Ports) == 0 && c.Exchange == nil):
		return errors.New("several agents need the address of agent 0, and ports to meet at")
	case len(c.Hosts) != 0 && len(c.Hosts) != c.Count:
		return fmt.Errorf("%d hosts are named, but each agent needs one", len(c.Hosts))
	case c.Attempt < 0 || c.RunDir != nil && c.Attempt == 0:
		return errors.New("a run directory needs a claimed attempt, from 1")
	case c.Grace < 0 || c.TermGrace < 0 || c.JoinTimeout < 0 || c.LastCall < 0:
		return errors.New("time limits must not be negative")
	}
	return c.checkWorkers()
}

func (c AgentConfig) checkWorkers() error {
	if len(c.Local) == 0 {
		if c.Nproc < 1 || c.Nproc > rendezvous.MaxWorld {
			return fmt.Errorf("the number of workers on this node must be between 1 and %d, got %d", rendezvous.MaxWorld, c.Nproc)
		}
		return nil
	}
	if c.Nproc != 0 {
		return errors.New("the number of workers is given twice, in Nproc and in Local")
	}
	for _, p := range c.Local {
		if p.WorldSize < 1 || p.WorldSize > rendezvous.MaxWorld || p.Rank < 0 || p.Rank >= p.WorldSize ||
			p.LocalRank < 0 || p.LocalRank >= p.LocalWorldSize || p.NodeRank < 0 || p.NodeRank >= p.Nodes {
			return fmt.Errorf("a worker's numbers are out of range: %+v", p)
		}
	}
	return nil
}
