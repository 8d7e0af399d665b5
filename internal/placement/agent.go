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

// rendezvousPorts is how many ports agents try to meet on.
const rendezvousPorts = 8

// Agent is what decides where an agent of a run stands, beside Slurm.
type Agent struct {
	*torchrun.Options
	PerNode launch.Nproc  // workers
	Job     launch.Config // where the run has one, and else the default
	Builtin bool          // the workers are of the built-in trainer
	Program []string      // the workers' command
	JobID   string        // Slurm's, as people write it
	Environ []string
	Lookup  func(name string) (string, bool) // a variable of Environ
	Note    func(format string, args ...any) // tells a person what is good to know and no error
}

// Resolve fills in where this agent stands among the others, from Slurm, whose allocation it returns, or from flags.
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
			Hint:    "leave " + a.How("standalone") + " out, and Slurm says the rest",
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
	case err != nil && alloc != nil && ctx.Err() == nil: // a name that this node may be alone not to know
		cfg.Reject = cmp.Or(cfg.Reject, err)
	case err != nil:
		return nil, err
	}
	if cfg.Index <= 0 && cfg.Reject == nil {
		a.notes(alloc)
	}
	return alloc, nil
}

// srunPorts is how many ports Slurm's SrunPortRange has at least where agents take some of them: of fewer srun needs each.
const srunPorts = 256

// portRanges are where ports are taken from: as the job says, else as Slurm does for srun, whose connections a firewall between nodes lets
// through; none where neither says.
func (a *Agent) portRanges() launch.PortRanges {
	if ranges, err := launch.ParsePorts(a.Job.Ports); err == nil { // jobfile refuses others
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
		return usage.Errorf("%s is %d, and there is one node: --nnodes says how many there are", a.How("node-rank"), a.NodeRank)
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
			Message: fmt.Sprintf("SLURM_NTASKS is %d, and this would be a world of one", tasks),
			Hint:    "start it with srun and without --standalone, or say --nproc-per-node",
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

// noID is torchrun's --rdzv-id where none is given. Agents of several nodes take where they meet for their run's id instead, as other runs
// have another place.
const noID = "none"

// oneNode is for one node. Its workers' port is a free one, unless they are told one. As under torchrun, a standalone run has an id that no
// other has, and another without --rdzv-id is "none".
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

// staticRendezvous is for nodes that have numbers: torchrun's static rendezvous.
func (a *Agent) staticRendezvous(cfg *launch.AgentConfig) error {
	switch {
	case !a.Has("node-rank") || !a.Has("master-addr"):
		return &usage.Error{
			Message: fmt.Sprintf("%s is %d", a.How("nnodes"), cfg.Count),
			Hint: "say --node-rank and --master-addr, too, or --rdzv-backend c10d and --rdzv-endpoint; " +
				"under srun leave --nnodes out",
		}
	case a.MasterPort < 1 || a.MasterPort > 65535-rendezvousPorts:
		return usage.Errorf("%s is %d; it must be 1 to %d, as nodes meet on the ports after it", a.How("master-port"),
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

// c10dRendezvous is for nodes that are numbered as they come: torchrun's c10d rendezvous. One that says its number keeps it.
func (a *Agent) c10dRendezvous(cfg *launch.AgentConfig) error {
	host, port := a.Rendezvous.Host, a.Rendezvous.Port
	if port < 0 {
		port = torchrun.C10dPort
	}
	switch {
	case host == "":
		return &usage.Error{
			Message: fmt.Sprintf("%s is %d, and no --rdzv-endpoint says where they meet", a.How("nnodes"), cfg.Count),
			Hint:    "write --rdzv-endpoint HOST:PORT with the first node's name, the same on every node",
		}
	case port < 1:
		return usage.Errorf("%s has port 0, and %s is %d: every node must know the port", a.How("rdzv-endpoint"),
			a.How("nnodes"), cfg.Count)
	}
	cfg.RunID = cmp.Or(a.Rendezvous.ID, "c10d/"+torchrun.JoinEndpoint(host, port))
	cfg.TorchID = cmp.Or(a.Rendezvous.ID, noID)
	switch isHost := a.Rendezvous.Conf.IsHost; {
	case a.Has("node-rank") && isHost != nil && *isHost != (a.NodeRank == 0):
		return usage.Errorf("%s is %d, and is_host=%t of %s: the host is node 0", a.How("node-rank"), a.NodeRank,
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

// interfaceOf is the network to meet on: the flag's, the one of --local-addr, or the job's.
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

// servesTorch reports whether this agent, if it is agent 0, serves PyTorch's store at MASTER_PORT: where a flag or the job says so, and
// otherwise for Python. A port that was given without either may be meant for a server of the workers' own.
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

// Tasks is SLURM_NTASKS; 0 where it is not set or no number.
func Tasks(lookup func(string) (string, bool)) int {
	text, _ := lookup("SLURM_NTASKS")
	tasks, _ := strconv.Atoi(text)
	return tasks
}

// Configure puts in what does not depend on where the agent is.
func (a *Agent) Configure(cfg *launch.AgentConfig) {
	cfg.Role, cfg.VirtualLocalRank = a.Role, a.VirtualLocalRank
	cfg.GPUs = cmp.Or(a.GPUs, cfg.GPUs)
	cfg.NUMA = cmp.Or(a.NUMA, cfg.NUMA)
	if a.Has("max-restarts") {
		cfg.MaxRestarts, cfg.Policy.MaxRestarts = a.MaxRestarts, a.MaxRestarts
	}
	if a.Has("shutdown-timeout") {
		cfg.Grace = max(1, a.ShutdownTimeout) // 0 would be the default
	}
	if a.Has("hang") {
		cfg.HangAfter = a.Hang
	}
	conf := a.Rendezvous.Conf
	cfg.JoinTimeout = cmp.Or(a.JoinTimeout, conf.JoinTimeout, conf.Timeout)
	if conf.LastCall != nil {
		cfg.LastCall = max(1, *conf.LastCall) // as above
	}
}
