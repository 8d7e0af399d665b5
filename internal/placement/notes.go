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

// notes tell which flags change nothing, and why. One agent of the run says them. alloc is Slurm's, nil by hand.
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

// noteOneNode is for a run of one node by hand, which meets nobody.
func (a *Agent) noteOneNode() {
	why := "there is one node"
	var names []string
	if a.Standalone {
		names = append(names, "rdzv-backend", "node-rank")
	}
	if a.Standalone || a.Rendezvous.Backend == torchrun.C10d {
		if a.Rendezvous.Port != 0 { // localhost:0 says no more than that
			names = append(names, "rdzv-endpoint")
		}
		names = append(names, "master-addr", "master-port")
		if a.Has("master-port") {
			why += ", and MASTER_PORT is a free port"
		}
	}
	a.notUsed(why, append(names, "local-addr", "interface")...)
}

// noteNodes is for several nodes by hand.
func (a *Agent) noteNodes() {
	host, flag := a.MasterAddr, "master-addr"
	if a.Rendezvous.Backend == torchrun.C10d {
		host, flag = a.Rendezvous.Host, "rdzv-endpoint"
		a.notUsed("nodes meet at --rdzv-endpoint, and MASTER_PORT is a free port", "master-addr", "master-port")
	}
	if isLoopbackName(host) {
		a.Note("%s is %s: only agents on this machine can come; where nodes are machines, write the first one's name", a.How(flag), host)
	}
}

// noteSlurm is for a step of Slurm's.
func (a *Agent) noteSlurm(alloc *slurm.Allocation) {
	a.notUsed("Slurm says which nodes there are and how they meet", "nnodes", "node-rank", "rdzv-backend", "rdzv-endpoint",
		"rdzv-id", "master-addr")
	switch {
	case alloc.TaskMode():
		a.notUsed("srun starts each worker as a task of its own", "nproc-per-node")
		if a.Nodes.Min < a.Nodes.Max {
			a.Note("%s: with a task per rank the run does not go on without some of them; start one task a node", a.How("nnodes"))
		}
	case len(alloc.Nodes) == 1:
		a.notUsed("there is one node", "local-addr", "interface")
	}
}

// notUsed tells in one line which of some flags were given for nothing.
func (a *Agent) notUsed(why string, names ...string) {
	var list []string
	for _, name := range names {
		// what --rdzv-endpoint says of --master-addr is told of itself
		if how := a.How(name); a.Has(name) && !(name == "master-addr" && how == a.How("rdzv-endpoint")) {
			list = append(list, how)
		}
	}
	if len(list) > 0 {
		a.Note("not needed: %s: %s", strings.Join(list, ", "), why)
	}
}

// checkRanks looks in the flags about output for ranks that are not there. In our own --ranks-filter it is an error where the world is
// known before the start. torchrun passes over them, and people rely on it: one line serves machines of several sizes, and -r 9:1 keeps
// torchrun 1.13, which fails without a map under Python 3.11, going. So its flags are warned of. alloc is Slurm's, nil by hand.
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
			there = named.what + " 0 alone"
		}
		switch how := a.How(named.flag); {
		case known && named.ours:
			return usage.Errorf("%s names %s %d, and this run has %s", how, named.what, beyond, there)
		case cfg.Index > 0: // one agent says it
		case known:
			a.Note("%s names %s %d, and this run has %s", how, named.what, beyond, there)
		default:
			a.Note("%s names %s %d: if every node has as many workers as this one (%d), there are %s", how, named.what,
				beyond, cfg.Nproc, there)
		}
	}
	return nil
}

// isLoopbackName tells whether a host is this machine alone, wherever it is said.
func isLoopbackName(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
