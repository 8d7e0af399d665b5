package placement

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// rendezvousPorts is the number of ports on which agents try to meet.
const rendezvousPorts = 8

// Agent holds what decides, beside Slurm, where an agent of a run stands among the others.
type Agent struct {
	*torchrun.Options
	PerNode launch.Nproc  // workers on each node
	Job     launch.Config // the job's settings, or the defaults if the run has no job
	Builtin bool          // the workers run the built-in trainer
	Program []string      // the workers' command
	JobID   string        // Slurm's ID, as people write it
	Environ []string
	Lookup  func(name string) (string, bool) // looks up a variable of Environ
	Note    func(format string, args ...any) // tells the user something worth knowing that is not an error
}

// Resolve fills in cfg with this agent's position among the others, from Slurm or from flags. It returns Slurm's allocation, or nil if
// flags decide.
func (a *Agent) Resolve(ctx context.Context, cfg *launch.AgentConfig) (*slurm.Allocation, error) {
	alloc, err := slurm.FromEnviron(a.Lookup)
	inSlurm := !errors.Is(err, slurm.ErrNotInSlurm)
	cfg.Ranges = a.portRanges()
	byHand := !inSlurm || a.Standalone || a.Nodes.Max > 0 && (err != nil || !alloc.InStep() || alloc.Tasks == 1 && a.Nodes.Max > 1)
	switch {
	case !byHand && err != nil:
		return nil, usage.Errorf("%v", err)
	case byHand && err == nil && alloc.InStep() && alloc.Tasks > 1:
		return nil, &usage.Error{
			Message: fmt.Sprintf("SLURM_NTASKS is %d: each task would start a world of its own", alloc.Tasks),
			Hint:    "leave " + a.How("standalone") + " out: Slurm provides the rest",
		}
	case byHand:
		alloc, err = nil, a.byHand(cfg)
	default:
		err = a.bySlurm(alloc, cfg)
	}
	if err != nil {
		return nil, err
	}
	cfg.TorchStore = a.servesTorch(cfg.MasterPort)
	if err := a.checkRanks(alloc, cfg); err != nil {
		return nil, err
	}
	switch cfg.Interface, err = a.interfaceOf(ctx); {
	case err != nil && alloc != nil && ctx.Err() == nil: // perhaps only this node cannot resolve the name
		cfg.Reject = cmp.Or(cfg.Reject, err)
	case err != nil:
		return nil, err
	}
	if cfg.Index <= 0 && cfg.Reject == nil {
		a.notes(alloc)
	}
	return alloc, nil
}

// srunPorts is the least number of ports in Slurm's SrunPortRange for agents to use that range. In a smaller range srun needs all of them.
const srunPorts = 256

// portRanges returns the ports that agents may use: those of the job, or else Slurm's range for srun, whose connections a firewall between
// the nodes lets through. It returns nil if neither is set.
func (a *Agent) portRanges() launch.PortRanges {
	if ranges, err := launch.ParsePorts(a.Job.Ports); err == nil { // package jobfile has rejected invalid ones
		return ranges
	}
	text, _ := a.Lookup(jobenv.PortsVariable)
	ranges, err := launch.ParsePorts(text)
	if err != nil || ranges.Count() < srunPorts {
		return nil
	}
	return ranges
}

func (a *Agent) byHand(cfg *launch.AgentConfig) (err error) {
	cfg.Count = max(1, a.Nodes.Max)
	if a.NodeRank >= cfg.Count && !a.Standalone {
		return usage.Errorf("%s is %d, but there is only one node: set the number of nodes with --nnodes", a.How("node-rank"), a.NodeRank)
	}
	if cfg.Count > 1 {
		cfg.Index = a.NodeRank
	}
	cfg.MinCount = min(cmp.Or(a.Nodes.Min, cfg.MinCount), cfg.Count)
	if cfg.Nproc, err = a.PerNode.On(a.NodeRank, a.Lookup); err != nil {
		return usage.Errorf("%v", err)
	}
	if tasks := Tasks(a.Lookup); tasks > 1 && cfg.Count*cfg.Nproc == 1 {
		return &usage.Error{
			Message: fmt.Sprintf("SLURM_NTASKS is %d, but this run would have a world size of 1", tasks),
			Hint:    "start it with srun and without --standalone, or pass --nproc-per-node",
		}
	}
	switch {
	case cfg.Count == 1:
		err = a.oneNode(cfg)
	case a.Rendezvous.Backend == torchrun.C10d:
		err = a.c10dRendezvous(cfg)
	default:
		err = a.staticRendezvous(cfg)
	}
	return err
}

// noID is torchrun's run ID if --rdzv-id is not given. Agents on several nodes use the address at which they meet as the run's ID instead,
// because other runs meet elsewhere.
const noID = "none"

// oneNode configures a run on one node. Its workers use a free port unless a flag gives one. As under torchrun, the ID of a standalone run
// is unique, and that of another run without --rdzv-id is "none".
func (a *Agent) oneNode(cfg *launch.AgentConfig) error {
	cfg.RunID = cmp.Or(a.Rendezvous.ID, noID)
	if a.Standalone && a.Rendezvous.ID == "" {
		cfg.RunID = rand.Text()
	}
	if a.Standalone || a.Rendezvous.Backend == torchrun.C10d {
		return nil
	}
	if a.Has("master-port") {
		cfg.MasterPort = a.MasterPort
	}
	if a.Has("master-addr") {
		cfg.MasterAddr = a.MasterAddr
	}
	return nil
}

// staticRendezvous configures torchrun's static rendezvous, in which the nodes have numbers.
func (a *Agent) staticRendezvous(cfg *launch.AgentConfig) error {
	switch {
	case !a.Has("node-rank") || !a.Has("master-addr"):
		return &usage.Error{
			Message: fmt.Sprintf("%s is %d", a.How("nnodes"), cfg.Count),
			Hint: "add --node-rank and --master-addr, or --rdzv-backend c10d and --rdzv-endpoint; " +
				"under srun leave --nnodes out",
		}
	case a.MasterPort < 1 || a.MasterPort > 65535-rendezvousPorts:
		return usage.Errorf("%s is %d, but must be 1 to %d: nodes meet on the ports after it", a.How("master-port"),
			a.MasterPort, 65535-rendezvousPorts)
	}
	cfg.MasterAddr, cfg.MasterPort, cfg.MasterGiven = a.MasterAddr, a.MasterPort, true
	for i := range rendezvousPorts {
		cfg.Ports = append(cfg.Ports, a.MasterPort+1+i)
	}
	cfg.RunID = cmp.Or(a.Rendezvous.ID, "static/"+a.MasterAddr+":"+strconv.Itoa(a.MasterPort))
	cfg.TorchID = cmp.Or(a.Rendezvous.ID, noID)
	return nil
}

// c10dRendezvous configures torchrun's c10d rendezvous, in which nodes are numbered in the order in which they arrive. A node with
// --node-rank keeps its number.
func (a *Agent) c10dRendezvous(cfg *launch.AgentConfig) error {
	host, port := a.Rendezvous.Host, a.Rendezvous.Port
	if port < 0 {
		port = torchrun.C10dPort
	}
	switch {
	case host == "":
		return &usage.Error{
			Message: fmt.Sprintf("%s is %d, but --rdzv-endpoint is not set: nodes need an address to meet at", a.How("nnodes"), cfg.Count),
			Hint:    "write --rdzv-endpoint HOST:PORT with the first node's name, the same on every node",
		}
	case port < 1:
		return usage.Errorf("%s has port 0, but %s is %d: every node must know the port", a.How("rdzv-endpoint"),
			a.How("nnodes"), cfg.Count)
	}
	cfg.RunID = cmp.Or(a.Rendezvous.ID, "c10d/"+torchrun.JoinEndpoint(host, port))
	cfg.TorchID = cmp.Or(a.Rendezvous.ID, noID)
	switch isHost := a.Rendezvous.Conf.IsHost; {
	case a.Has("node-rank") && isHost != nil && *isHost != (a.NodeRank == 0):
		return usage.Errorf("%s is %d, but %[4]s has is_host=%[3]t: the host is node 0", a.How("node-rank"), a.NodeRank,
			*isHost, a.How("rdzv-conf"))
	case a.Has("node-rank"):
		cfg.MasterAddr, cfg.Ports = host, []int{port}
	case isHost != nil && *isHost:
		cfg.Index, cfg.MasterAddr, cfg.Ports = 0, host, []int{port}
	default:
		cfg.Index, cfg.Endpoint, cfg.DialOnly = -1, torchrun.JoinEndpoint(host, port), isHost != nil
	}
	return nil
}

// interfaceOf returns the network on which agents meet: that of --interface, of --local-addr, or of the job.
func (a *Agent) interfaceOf(ctx context.Context) (string, error) {
	switch {
	case a.Standalone:
		return "", nil
	case a.LocalAddr == "":
		return cmp.Or(a.Interface, a.Job.Interface), nil
	case torchrun.IsIP(a.LocalAddr):
		return a.LocalAddr, nil
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, a.LocalAddr)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", usage.Errorf("%s: %v", a.How("local-addr"), err)
	}
	return addresses[0], nil
}

// servesTorch reports whether this agent, if it is agent 0, serves PyTorch's store at MASTER_PORT. A flag or the job decides; otherwise it
// does for Python programs, unless a port was given, on which the workers may run their own server.
func (a *Agent) servesTorch(masterPort int) bool {
	switch {
	case a.Has("torch-store"):
		return a.TorchStore
	case a.Job.TorchStore != nil:
		return *a.Job.TorchStore
	case a.Builtin || a.Has("master-port") && masterPort != 0:
		return false
	}
	return a.RunsPython(a.Program)
}

// Tasks returns SLURM_NTASKS, or 0 if it is not set or is not a number.
func Tasks(lookup func(string) (string, bool)) int {
	text, _ := lookup("SLURM_NTASKS")
	tasks, _ := strconv.Atoi(text)
	return tasks
}

// Configure sets the fields of cfg that do not depend on the agent's position.
func (a *Agent) Configure(cfg *launch.AgentConfig) {
	cfg.Role, cfg.VirtualLocalRank = a.Role, a.VirtualLocalRank
	cfg.GPUs = cmp.Or(a.GPUs, cfg.GPUs)
	cfg.NUMA = cmp.Or(a.NUMA, cfg.NUMA)
	if a.Has("max-restarts") {
		cfg.MaxRestarts, cfg.Policy.MaxRestarts = a.MaxRestarts, a.MaxRestarts
	}
	if a.Has("shutdown-timeout") {
		cfg.Grace = max(1, a.ShutdownTimeout) // 0 would select the default
	}
	if a.Has("hang") {
		cfg.HangAfter = a.Hang
	}
	conf := a.Rendezvous.Conf
	cfg.JoinTimeout = cmp.Or(a.JoinTimeout, conf.JoinTimeout, conf.Timeout)
	if conf.LastCall != nil {
		cfg.LastCall = max(1, *conf.LastCall) // 0 would select the default
	}
}
