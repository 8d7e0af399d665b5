package supervise

import (
	"context"
	"io"
	"log/slog"
	"syscall"
	"time"

	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
)

// Config configures how an agent supervises its workers.
type Config struct {
	rendezvous.Identity
	rendezvous.World
	Workers
	Devices
	Limits
	NodeChecks
	JobEnd
	Streams

	MasterAddr string          // for the workers
	OneMachine bool            // the nodes are simulated on this machine
	Policy     recovery.Policy // what follows a failure; this package uses Lead, and asks what would follow a drain
	Log        *slog.Logger
}

// Workers configures what the workers run.
type Workers struct {
	Command     []string
	Env         []string // what workers inherit, as in os.Environ
	Dir         string   // the workers' working directory; "": the agent's
	Builtin     bool     // the workers are ddpbatch's own: they get the secret
	Role        string   // ROLE_NAME; "": "default"
	MaxRestarts int      // for TORCHELASTIC_MAX_RESTARTS
	TorchStore  bool     // agent 0 serves PyTorch's TCPStore at MASTER_PORT, and all workers get to know; only agent 0's value counts

	// Sweep ends processes that left their worker, at the end of each round and of this process. The program must serve
	// proc.GuardCommand (proc.ServeGuard), since a second process of it is started as a guard.
	Sweep bool

	Container *Container // the container that each worker runs in; nil: none
}

// Devices configures which cores and GPUs the workers get; see device.Request.
type Devices struct {
	GPUs, NUMA       string
	VirtualLocalRank bool
	CPUsPerTask      int
}

// Limits configures how long workers may take.
type Limits struct {
	Grace     time.Duration // between TERM and KILL; 0: 60 s
	TermGrace time.Duration // in place of Grace, if shorter, once this run is told to stop, as KILL may follow soon; 0: Grace
	HangAfter time.Duration // after so long without a sign of life, workers count as hung; 0: never
	PeerWait  time.Duration // for the end of a peer that was lost according to a worker's last lines; 0: 3 s
}

// NodeChecks configures what is checked on a node before its workers are started; see [Config.CheckNode].
type NodeChecks struct {
	Checks     [][]string    // commands, each of which must exit with 0
	CheckLimit time.Duration // for all of them together; 0: DefaultCheckLimit
	Machine    bool          // the checks of package health
	RDMA       bool          // the workers' messages must use RDMA
}

// JobEnd configures when the job ends, and how workers are warned of that.
type JobEnd struct {
	Deadline time.Time // zero: none, or unknown
	// Agent 0 calls FindDeadline if Deadline is zero, and again when it is time to warn, or Slurm has sent a signal, because the
	// deadline may have moved. nil: it has not.
	FindDeadline func(ctx context.Context) (time.Time, error)
	// IsPreempted reports whether another job gets the nodes. Agent 0 calls it after a signal. nil: no other job does.
	IsPreempted func(ctx context.Context) (bool, error)
	// FindDrain finds the nodes of the job that Slurm drains, each with the reason, which may be empty. Agent 0 calls it once a
	// minute. An error that matches errors.ErrUnsupported means that this cannot be found out, now or later. Either all agents have
	// FindDrain or none has: without it, drains are not noticed. It needs a run directory.
	FindDrain func(ctx context.Context) (map[string]string, error)
	// Spares returns why the job could not start again without these nodes, or "" if it could. nil: it always can.
	Spares     func(ctx context.Context, nodes []string) (why string, err error)
	Warn       <-chan struct{} // receives when this agent gets a warning; it is never closed
	WarnSignal syscall.Signal  // sent on a warning, to workers that have a handler; 0: USR2
}

// Streams configures where the workers' output goes.
type Streams struct {
	Output         output.Config
	LogDir         string    // torchrun's --log-dir; "": the run directory's logs
	Stdout, Stderr io.Writer // get whole lines of all workers; nil: not shown
}

// stopFile is the file whose existence asks the workers of c's attempt to save and stop; "": no run directory.
func (c Config) stopFile() string {
	if c.RunDir == nil {
		return ""
	}
	return c.RunDir.StopPath(c.Attempt)
}

// signalFile is the file that the batch script makes when it gets a warning.
func (c Config) signalFile() string {
	if c.RunDir == nil {
		return ""
	}
	return c.RunDir.SignalPath(c.Attempt)
}
