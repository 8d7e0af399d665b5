package mpi

import "context"

// call is one collective, or messages that involve all ranks: large enough to be caught in the middle.
type call struct {
	name string
	do   func(ctx context.Context, c *Comm) error
}

const callLength = 1 << 15 // elements of a block

// everyCall is what ranks can do together.
var everyCall = []call{
	{"all_reduce", func(ctx context.Context, c *Comm) error {
		return AllReduce(ctx, c, make([]float32, 8*callLength), Sum)
	}},
	{"reduce", func(ctx context.Context, c *Comm) error {
		return Reduce(ctx, c, make([]float32, 8*callLength), c.Size()-1, Sum)
	}},
	{"reduce_scatter", func(ctx context.Context, c *Comm) error {
		return ReduceScatter(ctx, c, make([]float32, callLength), make([]float32, c.Size()*callLength), Sum)
	}},
	{"scan", func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]float32, 8*callLength), Sum) }},
	{"exscan", func(ctx context.Context, c *Comm) error { return Exscan(ctx, c, make([]float32, 8*callLength), Sum) }},
	{"broadcast", func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, make([]float32, 8*callLength), 0) }},
	{"all_gather", func(ctx context.Context, c *Comm) error {
		return AllGather(ctx, c, make([]float32, c.Size()*callLength), make([]float32, callLength))
	}},
	{"gather", func(ctx context.Context, c *Comm) error {
		var out []float32
		if c.Rank() == 0 {
			out = make([]float32, c.Size()*callLength)
		}
		return Gather(ctx, c, out, make([]float32, callLength), 0)
	}},
	{"scatter", func(ctx context.Context, c *Comm) error {
		var in []float32
		if c.Rank() == 0 {
			in = make([]float32, c.Size()*callLength)
		}
		return Scatter(ctx, c, make([]float32, callLength), in, 0)
	}},
	{"all_to_all", func(ctx context.Context, c *Comm) error {
		return AllToAll(ctx, c, make([]float32, c.Size()*callLength), make([]float32, c.Size()*callLength))
	}},
	{"barrier", func(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }},
	{"messages", func(ctx context.Context, c *Comm) error {
		next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		sent := ISend(c, make([]float32, callLength), next, 7)
		received := IRecv(c, make([]float32, callLength), last, 7)
		return WaitAll(ctx, sent, received)
	}},
}

// untilBroken makes calls until one fails.
func untilBroken(ctx context.Context, c *Comm, tt call) error {
	for {
		if err := tt.do(ctx, c); err != nil {
			return err
		}
	}
}
