package main

import (
	"fmt"
	"slices"

	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// checkRanks looks in the flags about output for ranks that are not there. In our own --ranks-filter it is an error where the world is known
// before the start. torchrun passes over them, and people rely on it: one line serves machines of several sizes, and -r 9:1 keeps torchrun
// 1.13, which fails without a map under Python 3.11, going. So its flags are warned of. alloc is Slurm's, nil by hand.
func (o *runOptions) checkRanks(e *env, alloc *slurm.Allocation, cfg *launch.AgentConfig) error {
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
		{"local-ranks-filter", "local rank", o.localRanks, local, false},
		{"ranks-filter", "rank", o.ranks, world, true},
		{"redirects", "local rank", o.redirects.Named(), local, false},
		{"tee", "local rank", o.tees.Named(), local, false},
	} {
		if len(named.ranks) == 0 || slices.Max(named.ranks) < named.size {
			continue
		}
		beyond := named.ranks[slices.IndexFunc(named.ranks, func(rank int) bool { return rank >= named.size })]
		there := fmt.Sprintf("%ss 0 to %d", named.what, named.size-1)
		if named.size == 1 {
			there = named.what + " 0 alone"
		}
		switch how := o.how(named.flag); {
		case known && named.ours:
			return usagef("%s names %s %d, and this run has %s", how, named.what, beyond, there)
		case cfg.Index > 0: // one agent says it
		case known:
			o.note(e, "%s names %s %d, and this run has %s", how, named.what, beyond, there)
		default:
			o.note(e, "%s names %s %d: if every node has as many workers as this one (%d), there are %s", how, named.what, beyond, cfg.Nproc, there)
		}
	}
	return nil
}
