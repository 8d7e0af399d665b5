package collbench

import (
	"context"
	"slices"
	"strings"
	"time"

	"ddpbatch/mpi"
)

// collective is what there is to know of a collective, or of something else that is timed, apart from its calls on elements.
type collective struct {
	name    string
	chooses string // what package mpi calls it, where it has a choice of algorithms
	atLeast int    // ranks
	blocks  bool   // a row's count is that of one rank's block, its size that of all ranks' (as in nccl-tests)
	uneven  bool   // the blocks' lengths differ; a row's count is their mean
	reduces bool
	oneWay  bool // the time is half of rank 0's

	twoBuffers bool // in and out

	// bus is busbw/algbw for n ranks, of nccl-tests' doc/PERFORMANCE.md: what makes the figure that of the
	// links, whatever the number of ranks. nil: 1.
	bus func(n float64) float64

	// rows makes all rows of what moves no elements, on a rank that was joining since the given time.
	rows func(b *bench, ctx context.Context, joining time.Duration) error
}

// unsized reports whether c moves no elements.
func (c *collective) unsized() bool { return c.rows != nil }

func allButOne(n float64) float64 { return (n - 1) / n }

func twiceAllButOne(n float64) float64 { return 2 * allButOne(n) }

// benchmark is a row of the table of collectives.
type benchmark[T mpi.Number] struct {
	collective
	call func(s *buffers[T], count int) timedCall // nil where it moves no elements
}

// table has all that can be timed, with the calls on elements of one type. A new collective is a row here, and its call in buffers.go.
func table[T mpi.Number]() []benchmark[T] {
	type c = collective
	return []benchmark[T]{
		{c{name: "allreduce", chooses: "all_reduce", reduces: true, bus: twiceAllButOne}, (*buffers[T]).allReduce},
		{c{name: "reduce", chooses: "reduce", reduces: true}, (*buffers[T]).reduce},
		{
			c{name: "reducescatter", chooses: "reduce_scatter", reduces: true, blocks: true, twoBuffers: true, bus: allButOne},
			(*buffers[T]).reduceScatter,
		},
		{
			c{name: "reducescatterv", chooses: "reduce_scatter", reduces: true, blocks: true, uneven: true,
				twoBuffers: true, bus: allButOne},
			(*buffers[T]).reduceScatterV,
		},
		{c{name: "scan", chooses: "scan", reduces: true}, (*buffers[T]).scan},
		{c{name: "exscan", chooses: "exscan", reduces: true}, (*buffers[T]).exscan},
		{c{name: "broadcast", chooses: "broadcast"}, (*buffers[T]).broadcast},
		{c{name: "allgather", chooses: "all_gather", blocks: true, twoBuffers: true, bus: allButOne}, (*buffers[T]).allGather},
		{c{name: "gather", chooses: "gather", blocks: true, twoBuffers: true, bus: allButOne}, (*buffers[T]).gather},
		{c{name: "scatter", chooses: "scatter", blocks: true, twoBuffers: true, bus: allButOne}, (*buffers[T]).scatter},
		{c{name: "alltoall", chooses: "all_to_all", blocks: true, twoBuffers: true, bus: allButOne}, (*buffers[T]).allToAll},
		{
			c{name: "allgatherv", chooses: "all_gather", blocks: true, uneven: true, twoBuffers: true, bus: allButOne},
			(*buffers[T]).allGatherV,
		},
		{c{name: "gatherv", chooses: "gather_v", blocks: true, uneven: true, twoBuffers: true, bus: allButOne}, (*buffers[T]).gatherV},
		{c{name: "scatterv", chooses: "scatter_v", blocks: true, uneven: true, twoBuffers: true, bus: allButOne}, (*buffers[T]).scatterV},
		{c{name: "alltoallv", chooses: "all_to_all_v", blocks: true, uneven: true, twoBuffers: true, bus: allButOne},
			(*buffers[T]).allToAllV},
		{c{name: "pingpong", atLeast: 2, twoBuffers: true, oneWay: true}, (*buffers[T]).pingPong},
		{c{name: "barrier", chooses: "barrier", rows: (*bench).barrier}, nil},
		{c{name: "store", rows: (*bench).store}, nil},
		{c{name: "startup", rows: (*bench).startup}, nil},
	}
}

// collectives are those of the table.
var collectives = func() (all []*collective) {
	for _, e := range table[float32]() {
		all = append(all, &e.collective)
	}
	return all
}()

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

// Names are those of all that can be timed.
func Names() (names []string) {
	for _, c := range collectives {
		names = append(names, c.name)
	}
	return names
}
