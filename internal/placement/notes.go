package placement

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// notes reports which flags have no effect, and why. Only one agent of the run reports them. alloc is nil without Slurm.
func (a *Agent) notes(alloc *slurm.Allocation) {
	for _, note := range a.Notes(a.Environ, alloc == nil && a.Nodes.Max > 1 && a.Rendezvous.Backend == torchrun.C10d) {
		a.Note("%s", note)
	}
	switch {
	case alloc == nil && a.Nodes.Max <= 1:
		a.noteOneNode()
	case alloc == nil:
		a.noteNodes()
	default:
		a.noteSlurm(alloc)
	}
}

// noteOneNode reports the flags that have no effect in a run on one node without Slurm, which has no other agents to meet.
func (a *Agent) noteOneNode() {
	why := "there is one node"
	var names []string
	if a.Standalone {
		names = append(names, "rdzv-backend", "node-rank")
	}
	if a.Standalone || a.Rendezvous.Backend == torchrun.C10d {
		if a.Rendezvous.Port != 0 { // localhost:0 has the same meaning as no endpoint
			names = append(names, "rdzv-endpoint")
		}
		names = append(names, "master-addr", "master-port")
		if a.Has("master-port") {
			why += ", and MASTER_PORT is a free port"
		}
	}
	a.notUsed(why, append(names, "local-addr", "interface")...)
}

// noteNodes reports the flags that have no effect in a run on several nodes without Slurm.
func (a *Agent) noteNodes() {
	host, flag := a.MasterAddr, "master-addr"
	if a.Rendezvous.Backend == torchrun.C10d {
		host, flag = a.Rendezvous.Host, "rdzv-endpoint"
		a.notUsed("nodes meet at --rdzv-endpoint, and MASTER_PORT is a free port", "master-addr", "master-port")
	}
	if isLoopbackName(host) {
		a.Note("%s is %s: only agents on this machine can connect; for several machines, give the name of the first", a.How(flag), host)
	}
}

// noteSlurm reports the flags that have no effect in a Slurm step.
func (a *Agent) noteSlurm(alloc *slurm.Allocation) {
	a.notUsed("Slurm decides which nodes there are and how they meet", "nnodes", "node-rank", "rdzv-backend", "rdzv-endpoint",
		"rdzv-id", "master-addr")
	switch {
	case alloc.TaskMode():
		a.notUsed("srun starts each worker as a task of its own", "nproc-per-node")
		if a.Nodes.Min < a.Nodes.Max {
			a.Note("%s: with one task per rank the run cannot continue with fewer nodes; start one task per node", a.How("nnodes"))
		}
	case len(alloc.Nodes) == 1:
		a.notUsed("there is one node", "local-addr", "interface")
	}
}

// notUsed reports in one line those of the named flags that were given but have no effect.
func (a *Agent) notUsed(why string, names ...string) {
	var list []string
	for _, name := range names {
		// A --master-addr that comes from --rdzv-endpoint is not listed a second time.
		if how := a.How(name); a.Has(name) && !(name == "master-addr" && how == a.How("rdzv-endpoint")) {
			list = append(list, how)
		}
	}
	if len(list) > 0 {
		a.Note("not needed: %s: %s", strings.Join(list, ", "), why)
	}
}

// checkRanks looks for ranks that do not exist in the flags about output. In --ranks-filter, which is ours, such a rank is an error if the
// world size is known before the start. torchrun ignores them, and users rely on that: one command line serves machines of several sizes,
// and torchrun 1.13, which fails without a map under Python 3.11, runs with -r 9:1. So torchrun's flags only get a warning. alloc is nil
// without Slurm.
func (a *Agent) checkRanks(alloc *slurm.Allocation, cfg *launch.AgentConfig) error {
	local, world := cfg.Nproc, cfg.Nproc*cfg.Count
	known := cfg.Count == 1
	if len(cfg.Local) > 0 {
		local, world, known = slices.Max(alloc.TasksPerNode), cfg.Count, true
	}
	for _, named := range []struct {
		flag, what string
		ranks      []int
		size       int
		ours       bool
	}{
		{"local-ranks-filter", "local rank", a.Output.LocalRanks, local, false},
		{"ranks-filter", "rank", a.Output.Ranks, world, true},
		{"redirects", "local rank", a.Output.Redirects.Named(), local, false},
		{"tee", "local rank", a.Output.Tees.Named(), local, false},
	} {
		if len(named.ranks) == 0 || slices.Max(named.ranks) < named.size {
			continue
		}
		beyond := named.ranks[slices.IndexFunc(named.ranks, func(rank int) bool { return rank >= named.size })]
		there := fmt.Sprintf("%ss 0 to %d", named.what, named.size-1)
		if named.size == 1 {
			there = "only " + named.what + " 0"
		}
		switch how := a.How(named.flag); {
		case known && named.ours:
			return usage.Errorf("%s names %s %d, but this run has %s", how, named.what, beyond, there)
		case cfg.Index > 0: // one agent reports it
		case known:
			a.Note("%s names %s %d, but this run has %s", how, named.what, beyond, there)
		default:
			a.Note("%s names %s %d: if every node has as many workers as this one (%d), there are %s", how, named.what,
				beyond, cfg.Nproc, there)
		}
	}
	return nil
}

// isLoopbackName reports whether a host name or address means the local machine on every machine.
func isLoopbackName(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
