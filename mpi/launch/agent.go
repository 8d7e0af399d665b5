package launch

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
)

const (
	defaultGrace       = 60 * time.Second
	defaultJoinTimeout = 5 * time.Minute
	maxWorld           = 1 << 20 // ranks; more is a slip of the pen
)

// Place is the place of one worker in the world, with torchrun's meaning of
// each number.
type Place struct {
	Rank           int `json:"rank"`
	LocalRank      int `json:"local_rank"` // its index among the workers of its node
	WorldSize      int `json:"world_size"`
	LocalWorldSize int `json:"local_world_size"` // workers on its node
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// AgentConfig is what one agent needs to know. Everything but its place, its
// host and its own workers must be the same for all agents of a run.
type AgentConfig struct {
	Index int      // this agent's place among the agents of the run
	Count int      // how many there are: one a node, or in task mode one a task
	Host  string   // this node's name, for logs and messages
	Hosts []string // every agent's node name, where known, for messages

	// Workers: in agent mode Nproc of them, with ranks contiguous by agent; in
	// task mode Local, whose places are fixed beforehand.
	Nproc int
	Local []Place

	// Agents meet at MasterAddr, on the first of Ports that agent 0 could bind.
	// Workers get MasterAddr and MasterPort; 0 lets agent 0 find a free port. A
	// single agent needs neither.
	MasterAddr string
	MasterPort int
	Ports      []int

	Secret  auth.Secret
	RunID   string
	Attempt int    // claimed by the caller; 0: none
	Version string // of the program; all agents must have the same

	// Restarts and MaxRestarts are told to the workers, as is Deadline (zero: none).
	Restarts, MaxRestarts int
	Deadline              time.Time
	JobID                 string // told to the verdict

	Command []string
	Env     []string // what workers inherit, as in os.Environ
	Dir     string   // where workers run; "": where the agent does
	Builtin bool     // the workers are ddpbatch's own: they get the secret

	// RunDir is where logs and the verdict go; nil: nowhere. CheckpointDir and
	// StopFile are told to the workers; "" means RunDir's own.
	RunDir        *rundir.Dir
	CheckpointDir string
	StopFile      string

	Grace       time.Duration // between TERM and KILL; 0: 60 s
	JoinTimeout time.Duration // for all agents to meet; 0: 5 min

	Stdout, Stderr io.Writer    // whole lines of all workers; nil: nowhere
	Log            *slog.Logger // nil: nowhere
}

// withDefaults checks c and fills in what was left out.
func (c AgentConfig) withDefaults() (AgentConfig, error) {
	if err := c.check(); err != nil {
		return c, fmt.Errorf("agent %d of %d: %w", c.Index, c.Count, err)
	}
	if c.MasterAddr == "" {
		c.MasterAddr = loopback
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.JoinTimeout == 0 {
		c.JoinTimeout = defaultJoinTimeout
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
	case c.Count < 1 || c.Index < 0 || c.Index >= c.Count:
		return errors.New("there is no such agent")
	case c.Host == "":
		return errors.New("the node has no name")
	case len(c.Command) == 0 || c.Command[0] == "":
		return errors.New("there is no command to run")
	case c.MasterPort < 0 || c.MasterPort > 65535:
		return fmt.Errorf("master port %d is not between 1 and 65535", c.MasterPort)
	case c.Count > 1 && (c.MasterAddr == "" || len(c.Ports) == 0):
		return errors.New("several agents need the address of agent 0 and ports to meet at")
	case len(c.Hosts) != 0 && len(c.Hosts) != c.Count:
		return fmt.Errorf("%d hosts are named", len(c.Hosts))
	case c.Attempt < 0 || c.RunDir != nil && c.Attempt == 0:
		return errors.New("a run directory needs a claimed attempt")
	case c.Grace < 0 || c.JoinTimeout < 0:
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
	return "an unnamed node"
}

const loopback = "127.0.0.1"

// isLoopback tells whether only this machine reaches addr.
func isLoopback(addr string) bool {
	ip := net.ParseIP(addr)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(addr, "localhost")
}
