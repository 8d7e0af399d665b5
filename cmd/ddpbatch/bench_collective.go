package main

import (
	"slices"
	"strings"
)

// benchCollective is what is told of a collective apart from how it is called.
type benchCollective struct {
	name    string
	atLeast int  // ranks
	blocks  bool // a row's count is that of one rank's block, its size that of all ranks' (as in nccl-tests)
	reduces bool
	oneWay  bool // the time is half of rank 0's
	unsized bool // moves no elements: one row

	twoBuffers bool // in and out

	// bus is busbw/algbw for n ranks, of nccl-tests' doc/PERFORMANCE.md: what makes the figure that of the
	// links, whatever the number of ranks. nil: 1.
	bus func(n float64) float64
}

func allButOne(n float64) float64 { return (n - 1) / n }

var benchCollectives = []*benchCollective{
	{name: "allreduce", reduces: true, bus: func(n float64) float64 { return 2 * allButOne(n) }},
	{name: "reduce", reduces: true},
	{name: "reducescatter", reduces: true, blocks: true, twoBuffers: true, bus: allButOne},
	{name: "scan", reduces: true},
	{name: "exscan", reduces: true},
	{name: "broadcast"},
	{name: "allgather", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "gather", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "scatter", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "alltoall", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "pingpong", atLeast: 2, twoBuffers: true, oneWay: true},
	{name: "barrier", unsized: true},
	{name: "store", unsized: true},
	{name: "startup", unsized: true},
}

// collectiveNamed takes other libraries' spellings, too: all_reduce, reduce-scatter; sendrecv is pingpong. nil: there is none.
func collectiveNamed(name string) *benchCollective {
	name = strings.NewReplacer("_", "", "-", "").Replace(name)
	if name == "sendrecv" {
		name = "pingpong"
	}
	i := slices.IndexFunc(benchCollectives, func(c *benchCollective) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return benchCollectives[i]
}

func collectiveNames() string {
	var names []string
	for _, c := range benchCollectives {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
