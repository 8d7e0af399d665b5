package collbench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi"
)

// checkedIterations is how many checked calls are made before the timed calls, and again after them. Each has values of its own, and there
// is not a barrier between them: so data that arrives late, or from an earlier call, counts as wrong.
const checkedIterations = 2

// bench is one rank of a bench.
type bench struct {
	p           Process
	o           Options
	comm        *mpi.Comm
	timed       *mpi.Comm // comm with the algorithm of the options
	rank, ranks int
	clock       float64 // microseconds that reading the clock takes
	wrong       int64   // elements found wrong so far: on this rank; on rank 0, on all ranks
	print       printer // used on rank 0
}

// RunRank joins the world and runs one rank's part of the bench; rank 0 prints.
func RunRank(ctx context.Context, p Process, o Options) (err error) {
	joining := now()
	comm, err := p.Join(ctx, o.config())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	b := newBench(p, o, comm)
	if err := o.checkWorld(b.ranks); err != nil {
		return err
	}
	if err := b.checkAlgorithm(); err != nil {
		return err
	}
	b.clock = clockCost()
	if b.rank == 0 {
		b.print.heading(p.Version, o, b.ranks, comm.Network())
	}
	return b.rows(ctx, joining)
}

func newBench(p Process, o Options, comm *mpi.Comm) *bench {
	b := &bench{
		p: p, o: o, comm: comm, timed: comm, rank: comm.Rank(), ranks: comm.Size(),
		print: printer{w: p.Out, json: o.JSON, explain: o.Explain},
	}
	if o.Algorithm != "auto" {
		b.timed = comm.Using(o.Algorithm)
	}
	return b
}

// rows makes all rows. It also returns an error if results are wrong: on each rank for its own results, whose count does not depend on
// what is measured, and on rank 0 for the results of all ranks.
func (b *bench) rows(ctx context.Context, joining time.Duration) (err error) {
	if c := b.o.collective; c.unsized() {
		err = c.rows(b, ctx, joining)
	} else {
		err = b.sizes(ctx)
	}
	if err == nil {
		err = b.comm.Barrier(ctx) // a rank that ends with an error ends the others: none may do so before rank 0's last row
	}
	switch {
	case err != nil:
		return err
	case b.print.err != nil:
		return b.print.err
	case b.wrong > 0 && b.rank > 0:
		return fmt.Errorf("%d elements of rank %d's results are wrong", b.wrong, b.rank)
	case b.wrong > 0:
		return fmt.Errorf("%d elements of the results are wrong", b.wrong)
	}
	return nil
}

// sizes times the collective at every size.
func (b *bench) sizes(ctx context.Context) error {
	c, width, blocks := b.o.collective, b.o.element.width, int64(1)
	if c.blocks {
		blocks = int64(b.ranks)
	}
	call, err := b.o.element.open(ctx, b)
	if err != nil {
		return err
	}
	for size := b.o.Begin; size <= b.o.End; size *= b.o.Factor {
		count := size / width / blocks
		if count == 0 {
			continue // too small for one element for each rank
		}
		row := result{Size: count * width * blocks, Count: count, Type: b.o.element.name, Redop: "none"}
		if c.reduces {
			row.Redop = b.o.op.name
		}
		if err := b.row(ctx, row, call(int(count))); err != nil {
			return err
		}
	}
	return nil
}

// barrier makes the row of the barrier. It does not move elements, so none can be wrong.
func (b *bench) barrier(ctx context.Context, _ time.Duration) error {
	return b.row(ctx, result{Type: "none", Redop: "none"}, timedCall{
		fill:  func(int) {},
		run:   func(ctx context.Context) error { return b.timed.Barrier(ctx) }, // reads b.timed at each call, as explain changes it
		wrong: func(int) int64 { return 0 },
	})
}

// row makes the row of a call, or with --explain one row for each algorithm.
func (b *bench) row(ctx context.Context, row result, call timedCall) error {
	if b.o.Explain {
		return b.explain(ctx, row, call)
	}
	return b.time(ctx, row, call)
}

// time makes the row of a call: checked iterations, the measurement, and checked iterations again.
func (b *bench) time(ctx context.Context, row result, call timedCall) error {
	var wrong int64
	for iteration := range 2 * checkedIterations {
		if iteration == checkedIterations {
			call.fill(0)
			times, err := b.measure(ctx, call)
			if err != nil {
				return err
			}
			wrong += call.wrong(0)
			row = row.withTimes(times, b.o.collective, b.ranks)
		}
		call.fill(iteration + 1)
		if err := call.run(ctx); err != nil {
			return err
		}
		wrong += call.wrong(iteration + 1)
	}
	all, err := b.tally(ctx, wrong)
	if err != nil {
		return err
	}
	b.wrong += all
	row.Wrong, row.Transport, row.Encrypted = all, b.o.Transport, b.o.Encrypt
	if row.Algorithm, err = b.algorithm(row.Size); err != nil {
		return err
	}
	if b.rank == 0 {
		b.print.row(row)
	}
	return nil
}

// algorithm returns the name of the algorithm for calls of a size: the one of the options, or else the one that is chosen. It returns
// "auto" if the collective does not have several.
func (b *bench) algorithm(size int64) (string, error) {
	name := b.o.collective.chooses
	if b.o.Algorithm != "auto" || name == "" {
		return b.o.Algorithm, nil
	}
	predictions, err := b.comm.Explain(name, int(size))
	if err != nil {
		return "", err
	}
	for _, p := range predictions {
		if p.Chosen {
			return p.Algorithm, nil
		}
	}
	return b.o.Algorithm, nil
}

// checkAlgorithm refuses, before anything is measured, the name of an algorithm that the collective does not have. Only rank 0 returns a
// message.
func (b *bench) checkAlgorithm() error {
	if b.o.Algorithm == "auto" {
		return nil
	}
	predictions, err := b.comm.Explain(b.o.collective.chooses, int(b.o.Begin))
	if err != nil {
		return err
	}
	var names []string
	for _, p := range predictions {
		if p.Algorithm == b.o.Algorithm {
			return nil // the calls themselves return an error if the algorithm cannot serve them
		}
		names = append(names, p.Algorithm)
	}
	if b.rank > 0 {
		return &exit.Error{Code: exit.Usage}
	}
	return usage.Errorf("--algorithm is %q; %s has %s", b.o.Algorithm, b.o.collective.name, strings.Join(names, ", "))
}

// explain makes a row for each algorithm that can serve the call, with its predicted time.
func (b *bench) explain(ctx context.Context, row result, call timedCall) error {
	predictions, err := b.comm.Explain(b.o.collective.chooses, int(row.Size))
	if err != nil {
		return err
	}
	for _, p := range predictions {
		if p.Refused != "" {
			continue
		}
		b.timed, b.o.Algorithm = b.comm.Using(p.Algorithm), p.Algorithm
		row.Predicted, row.Chosen = float64(p.Time)/float64(time.Microsecond), p.Chosen
		if err := b.time(ctx, row, call); err != nil {
			return err
		}
	}
	return nil
}
