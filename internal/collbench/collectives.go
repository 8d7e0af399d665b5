package collbench

import (
	"slices"
	"strings"
)

// collective is what is told of a collective apart from how it is called.
type collective struct {
	name    string
	chooses string // what package mpi calls it, where it has a choice of algorithms
	atLeast int    // ranks
	blocks  bool   // a row's count is that of one rank's block, its size that of all ranks' (as in nccl-tests)
	reduces bool
	oneWay  bool // the time is half of rank 0's
	unsized bool // moves no elements: one row

	twoBuffers bool // in and out

	// bus is busbw/algbw for n ranks, of nccl-tests' doc/PERFORMANCE.md: what makes the figure that of the
	// links, whatever the number of ranks. nil: 1.
	bus func(n float64) float64
}

func allButOne(n float64) float64 { return (n - 1) / n }

var collectives = []*collective{
	{name: "allreduce", chooses: "all_reduce", reduces: true, bus: func(n float64) float64 { return 2 * allButOne(n) }},
	{name: "reduce", chooses: "reduce", reduces: true},
	{name: "reducescatter", chooses: "reduce_scatter", reduces: true, blocks: true, twoBuffers: true, bus: allButOne},
	{name: "scan", chooses: "scan", reduces: true},
	{name: "exscan", chooses: "exscan", reduces: true},
	{name: "broadcast", chooses: "broadcast"},
	{name: "allgather", chooses: "all_gather", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "gather", chooses: "gather", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "scatter", chooses: "scatter", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "alltoall", chooses: "all_to_all", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "pingpong", atLeast: 2, twoBuffers: true, oneWay: true},
	{name: "barrier", chooses: "barrier", unsized: true},
	{name: "store", unsized: true},
	{name: "startup", unsized: true},
}

// collectiveNamed takes other libraries' spellings, too: all_reduce, reduce-scatter; sendrecv is pingpong. nil: there is none.
func collectiveNamed(name string) *collective {
	name = strings.NewReplacer("_", "", "-", "").Replace(name)
	if name == "sendrecv" {
		name = "pingpong"
	}
	i := slices.IndexFunc(collectives, func(c *collective) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return collectives[i]
}

func collectiveNames() string {
	var names []string
	for _, c := range collectives {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
