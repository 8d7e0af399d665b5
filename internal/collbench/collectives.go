package collbench

import (
	"context"
	"slices"
	"strings"
	"time"

	"ddpbatch/mpi"
)

// collective describes a collective, or something else that is timed, except for its calls on elements.
type collective struct {
	name    string
	chooses string // its name in package mpi, if it has several algorithms
	atLeast int    // the least number of ranks
	blocks  bool   // a row's count is that of one rank's block, and its size that of all ranks' blocks (as in nccl-tests)
	uneven  bool   // the blocks' lengths differ; a row's count is their mean
	reduces bool
	oneWay  bool // the time is half of rank 0's

	twoBuffers bool // it has separate buffers for input and output

	// bus returns busbw/algbw for n ranks, from nccl-tests' doc/PERFORMANCE.md: busbw is the bandwidth of the
	// links, whatever the number of ranks. nil: 1.
	bus func(n float64) float64

	// rows makes all rows, if c does not move elements. joining is the time at which this rank began to join the world.
	rows func(b *bench, ctx context.Context, joining time.Duration) error
}

// unsized reports whether c does not move elements.
func (c *collective) unsized() bool { return c.rows != nil }

func allButOne(n float64) float64 { return (n - 1) / n }

func twiceAllButOne(n float64) float64 { return 2 * allButOne(n) }

// benchmark is a row of the table of collectives.
type benchmark[T mpi.Number] struct {
	collective
	call func(s *buffers[T], count int) timedCall // nil if it does not move elements
}

// table returns everything that can be timed, with the calls on elements of one type. A new collective needs a row here, and its call in
// buffers.go.
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

// collectives are the collectives of the table.
var collectives = func() (all []*collective) {
	for _, e := range table[float32]() {
		all = append(all, &e.collective)
	}
	return all
}()

// collectiveNamed returns the collective of that name, or nil. It accepts other libraries' spellings, too: all_reduce, reduce-scatter, and
// sendrecv for pingpong.
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

// Names returns the names of everything that can be timed.
func Names() (names []string) {
	for _, c := range collectives {
		names = append(names, c.name)
	}
	return names
}
