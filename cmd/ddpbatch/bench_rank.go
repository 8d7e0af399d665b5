package main

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/mpi"
)

// benchRank is one rank of a bench.
type benchRank struct {
	e           *env
	o           benchOptions
	comm        *mpi.Comm
	timed       *mpi.Comm // comm with the algorithm asked for
	rank, ranks int
	clock       float64      // microseconds that reading the clock takes
	print       benchPrinter // on rank 0
}

// benchAsRank is one rank's part; rank 0 prints.
func benchAsRank(ctx context.Context, e *env, o benchOptions) (err error) {
	joining := now()
	comm, err := joinWorld(ctx, e, o.config())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	b := &benchRank{e: e, o: o, comm: comm, rank: comm.Rank(), ranks: comm.Size(), print: benchPrinter{w: e.Out, json: o.json, explain: o.explain}}
	if err := o.checkWorld(b.ranks); err != nil {
		return err
	}
	b.clock, b.timed = clockCost(), comm
	if o.algorithm != "auto" {
		b.timed = comm.Using(o.algorithm)
	}
	if b.rank == 0 {
		b.print.heading()
	}
	switch o.collective.name {
	case "startup":
		err = b.startup(ctx, joining)
	case "store":
		err = b.store(ctx)
	case "barrier":
		err = b.time(ctx, benchRow{Type: "none", Redop: "none"}, barrierCall(b))
	default:
		err = b.sizes(ctx)
	}
	if err == nil {
		err = b.print.err
	}
	if err == nil && b.print.wrong > 0 {
		err = fmt.Errorf("%d elements of the results are wrong", b.print.wrong)
	}
	return err
}

// sizes times the collective at every size.
func (b *benchRank) sizes(ctx context.Context) error {
	c, width, blocks := b.o.collective, b.o.element.width, int64(1)
	if c.blocks {
		blocks = int64(b.ranks)
	}
	calls, err := b.o.element.open(ctx, b)
	if err != nil {
		return err
	}
	for size := b.o.begin; size <= b.o.end; size *= b.o.factor {
		count := size / width / blocks
		if count == 0 {
			continue // too small for an element of each rank
		}
		row := benchRow{Size: count * width * blocks, Count: count, Type: b.o.element.name, Redop: "none"}
		if c.reduces {
			row.Redop = b.o.op.name
		}
		rows := b.time
		if b.o.explain {
			rows = b.explain
		}
		if err := rows(ctx, row, calls[c.name](int(count))); err != nil {
			return err
		}
	}
	return nil
}

// time makes a row of a call: a check, the measurement, a check with other values.
func (b *benchRank) time(ctx context.Context, row benchRow, call benchCall) error {
	first, err := b.check(ctx, call, 1)
	if err != nil {
		return err
	}
	call.fill(0)
	us, err := b.measure(ctx, call)
	if err != nil {
		return err
	}
	second, err := b.check(ctx, call, 2)
	if err != nil {
		return err
	}
	row.Wrong, row.Transport = first+second, b.o.transport
	if row.Algorithm, err = b.algorithm(row.Size); err != nil {
		return err
	}
	if b.rank == 0 {
		b.print.row(row.withSpeed(us, b.o.collective, b.ranks))
	}
	return nil
}

// check makes one call and counts what is wrong on all ranks.
func (b *benchRank) check(ctx context.Context, call benchCall, seed int) (int64, error) {
	call.fill(seed)
	if err := b.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	if err := call.run(ctx); err != nil {
		return 0, err
	}
	wrong := []int64{call.wrong(seed)}
	err := mpi.AllReduce(ctx, b.comm, wrong, mpi.Sum)
	return wrong[0], err
}
