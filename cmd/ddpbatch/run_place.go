package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// place fills in where this agent stands among the others, from Slurm, whose allocation it returns, or from flags.
func place(ctx context.Context, e *env, o *runOptions, w *workers, cfg *launch.AgentConfig) (*slurm.Allocation, error) {
	alloc, err := slurm.FromEnviron(e.lookup)
	inSlurm := !errors.Is(err, slurm.ErrNotInSlurm)
	byHand := !inSlurm || o.standalone || o.nnodes.max > 0 && (err != nil || !alloc.InStep() || alloc.Tasks == 1 && o.nnodes.max > 1)
	switch {
	case !byHand && err != nil:
		return nil, usagef("%v", err)
	case byHand && err == nil && alloc.InStep() && alloc.Tasks > 1:
		return nil, &usageError{
			message: fmt.Sprintf("SLURM_NTASKS is %d: each task would start a world of its own", alloc.Tasks),
			hint:    "leave " + o.how("standalone") + " out, and Slurm says the rest",
		}
	case byHand:
		alloc, err = nil, placeByHand(e, o, w, cfg)
	default:
		err = placeBySlurm(e, o, w, alloc, cfg)
	}
	if err != nil {
		return nil, err
	}
	cfg.TorchStore = o.servesTorch(w, cfg)
	if err := o.checkRanks(e, alloc, cfg); err != nil {
		return nil, err
	}
	switch cfg.Interface, err = o.interfaceOf(ctx, w); {
	case err != nil && alloc != nil && ctx.Err() == nil: // a name that this node may be alone not to know
		cfg.Declines = cmp.Or(cfg.Declines, err)
	case err != nil:
		return nil, err
	}
	if cfg.Index <= 0 && cfg.Declines == nil {
		o.notes(e, alloc)
	}
	return alloc, nil
}

func placeByHand(e *env, o *runOptions, w *workers, cfg *launch.AgentConfig) (err error) {
	cfg.Count = max(1, o.nnodes.max)
	if o.nodeRank >= cfg.Count && !o.standalone {
		return usagef("%s is %d, and there is one node: --nnodes says how many there are", o.how("node-rank"), o.nodeRank)
	}
	if cfg.Count > 1 {
		cfg.Index = o.nodeRank
	}
	cfg.MinCount = min(cmp.Or(o.nnodes.min, cfg.MinCount), cfg.Count)
	if cfg.Nproc, err = w.nproc.On(o.nodeRank, e.lookup); err != nil {
		return usagef("%v", err)
	}
	if tasks := tasksOf(e); tasks > 1 && cfg.Count*cfg.Nproc == 1 {
		return &usageError{
			message: fmt.Sprintf("SLURM_NTASKS is %d, and this would be a world of one", tasks),
			hint:    "start it with srun and without --standalone, or say --nproc-per-node",
		}
	}
	switch {
	case cfg.Count == 1:
		err = o.meetNobody(cfg)
	case o.rdzv.backend == c10d:
		err = o.meetAtEndpoint(cfg)
	default:
		err = o.meetAtMaster(cfg)
	}
	return err
}

// noID is torchrun's --rdzv-id where none is given. Agents of several nodes take where they meet for their run's id instead, as other runs
// have another place.
const noID = "none"

// meetNobody is for one node. Its workers' port is a free one, unless they are told one. As under torchrun, a standalone run has an id that no
// other has, and another without --rdzv-id is "none".
func (o *runOptions) meetNobody(cfg *launch.AgentConfig) error {
	cfg.RunID = cmp.Or(o.rdzv.id, noID)
	if o.standalone && o.rdzv.id == "" {
		cfg.RunID = rand.Text()
	}
	if o.standalone || o.rdzv.backend == c10d {
		return nil
	}
	if o.has("master-port") {
		cfg.MasterPort = o.masterPort
	}
	if o.has("master-addr") {
		cfg.MasterAddr = o.masterAddr
	}
	return nil
}

// meetAtMaster is for nodes that have numbers: torchrun's static rendezvous.
func (o *runOptions) meetAtMaster(cfg *launch.AgentConfig) error {
	switch {
	case !o.has("node-rank") || !o.has("master-addr"):
		return &usageError{
			message: fmt.Sprintf("%s is %d", o.how("nnodes"), cfg.Count),
			hint: "say --node-rank and --master-addr, too, or --rdzv-backend c10d and --rdzv-endpoint; " +
				"under srun leave --nnodes out",
		}
	case o.masterPort < 1 || o.masterPort > 65535-meetingPorts:
		return usagef("%s is %d; it must be 1 to %d, as nodes meet on the ports after it", o.how("master-port"), o.masterPort, 65535-meetingPorts)
	}
	cfg.MasterAddr, cfg.MasterPort, cfg.MasterGiven = o.masterAddr, o.masterPort, true
	for i := range meetingPorts {
		cfg.Ports = append(cfg.Ports, o.masterPort+1+i)
	}
	cfg.RunID = cmp.Or(o.rdzv.id, "static/"+o.masterAddr+":"+strconv.Itoa(o.masterPort))
	cfg.TorchID = cmp.Or(o.rdzv.id, noID)
	return nil
}

// meetAtEndpoint is for nodes that are numbered as they come: torchrun's c10d rendezvous. One that says its number keeps it.
func (o *runOptions) meetAtEndpoint(cfg *launch.AgentConfig) error {
	host, port := o.rdzv.host, o.rdzv.port
	if port < 0 {
		port = c10dPort
	}
	switch {
	case host == "":
		return &usageError{
			message: fmt.Sprintf("%s is %d, and no --rdzv-endpoint says where they meet", o.how("nnodes"), cfg.Count),
			hint:    "write --rdzv-endpoint HOST:PORT with the first node's name, the same on every node",
		}
	case port < 1:
		return usagef("%s has port 0, and %s is %d: every node must know the port", o.how("rdzv-endpoint"), o.how("nnodes"), cfg.Count)
	}
	cfg.RunID = cmp.Or(o.rdzv.id, "c10d/"+joinEndpoint(host, port))
	cfg.TorchID = cmp.Or(o.rdzv.id, noID)
	switch isHost := o.rdzv.conf.isHost; {
	case o.has("node-rank") && isHost != nil && *isHost != (o.nodeRank == 0):
		return usagef("%s is %d, and is_host=%t of %s: the host is node 0", o.how("node-rank"), o.nodeRank, *isHost, o.how("rdzv-conf"))
	case o.has("node-rank"):
		cfg.MasterAddr, cfg.Ports = host, []int{port}
	case isHost != nil && *isHost:
		cfg.Index, cfg.MasterAddr, cfg.Ports = 0, host, []int{port}
	default:
		cfg.Index, cfg.Endpoint, cfg.Guest = -1, joinEndpoint(host, port), isHost != nil
	}
	return nil
}

// joinEndpoint writes an endpoint whose port may be absent (-1).
func joinEndpoint(host string, port int) string {
	if port < 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// interfaceOf is the network to meet on: the flag's, the one of --local-addr, or the job's.
func (o *runOptions) interfaceOf(ctx context.Context, w *workers) (string, error) {
	switch {
	case o.standalone:
		return "", nil
	case o.localAddr == "":
		return cmp.Or(o.network, w.launch.Interface), nil
	case isIP(o.localAddr):
		return o.localAddr, nil
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, o.localAddr)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", usagef("%s: %v", o.how("local-addr"), err)
	}
	return addresses[0], nil
}

// secretOf is what the agents of a run prove to each other. A single one proves it to its workers alone, and takes a new one; agents
// that can exchange a word without it are told one by agent 0.
func secretOf(e *env, cfg *launch.AgentConfig) (auth.Secret, error) {
	switch given := e.get("DDPBATCH_SECRET") != ""; {
	case !given && cfg.Count == 1:
		return auth.NewSecret()
	case !given && cfg.Exchange != nil:
		return auth.Secret{}, nil
	}
	return runSecret(e, cfg.RunID)
}
