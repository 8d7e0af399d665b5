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

// Config is what an agent needs to know to supervise its workers.
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
	OneMachine bool            // the nodes are pretended ones of this machine
	Policy     recovery.Policy // what follows a failure; here its Lead counts
	Log        *slog.Logger
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

	// Sweep has processes ended that left their worker, at the end of each round and of this process. The program must serve
	// proc.GuardCommand (proc.ServeGuard), since it is started again as a guard.
	Sweep bool

	Container *Container // that each worker runs in; nil: in none
}

// Devices is which cores and GPUs the workers get; see device.Request.
type Devices struct {
	GPUs, NUMA       string
	VirtualLocalRank bool
	CPUsPerTask      int
}

// Limits is how long workers may take.
type Limits struct {
	Grace     time.Duration // between TERM and KILL; 0: 60 s
	TermGrace time.Duration // in place of Grace, where it is shorter, once this run is told to stop: whoever tells may kill soon; 0: Grace
	HangAfter time.Duration // workers without a sign of life for so long hang; 0: never
	PeerWait  time.Duration // for the end of a peer of which a worker's last words say that it was lost; 0: 3 s
}

// NodeChecks is what is looked at on a node before its workers are started; see [Config.CheckNode].
type NodeChecks struct {
	Checks     [][]string    // commands, each of which must exit with 0
	CheckLimit time.Duration // for all of them together; 0: DefaultCheckLimit
	Machine    bool          // what package health looks for
	RDMA       bool          // the workers' messages must go by RDMA
}

// JobEnd is when the job ends, and how workers are warned of it.
type JobEnd struct {
	Deadline time.Time // zero: none, or not known
	// FindDeadline is asked by agent 0 where Deadline is zero, and once more when the time has come to warn, or Slurm has signalled: it may
	// have moved. nil: it has not.
	FindDeadline func(ctx context.Context) (time.Time, error)
	// whether another job is to get the nodes; asked by agent 0 at a signal; nil: none is
	IsPreempted func(ctx context.Context) (bool, error)
	// FindDrain finds the nodes of the job that Slurm drains, each with the reason, which may be empty. Agent 0 asks once a minute. An
	// error that matches errors.ErrUnsupported means that nobody can say, now or later. nil, at all agents or at none: nobody asks. It
	// needs a run directory.
	FindDrain func(ctx context.Context) (map[string]string, error)
	// Spares says why the job could not start again without these nodes; "": it could. nil: it always can.
	Spares     func(ctx context.Context, nodes []string) (why string, err error)
	Warn       <-chan struct{} // receives when this agent got a warning; it is never closed
	WarnSignal syscall.Signal  // forwarded on a warning, to workers that have a handler; 0: USR2
}

// Streams is where the workers' output goes.
type Streams struct {
	Output         output.Config
	LogDir         string    // torchrun's --log-dir; "": the run directory's logs
	Stdout, Stderr io.Writer // whole lines of all workers; nil: nowhere
}

// stopFile is the file whose being there asks the workers of c's attempt to save and stop; "": there is no folder for one.
func (c Config) stopFile() string {
	if c.RunDir == nil {
		return ""
	}
	return c.RunDir.StopPath(c.Attempt)
}

// signalFile is the file by which the batch script says that it got a warning.
func (c Config) signalFile() string {
	if c.RunDir == nil {
		return ""
	}
	return c.RunDir.SignalPath(c.Attempt)
}
