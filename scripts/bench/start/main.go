// Command start times how jobs begin and end: ddpbatch beside the launchers of MPI libraries and PyTorch, and by itself as the
// many agents of a pretend cluster. scripts/bench-start builds and starts it, in the root of the repository.
//
// Ranks of all sides are the least programs there are: they join, meet in a barrier, and rank 0 writes a line, to which the time
// is taken from outside. Ours is rank/main.go, MPI libraries have peers/mpi.c, PyTorch peers/meet.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"ddpbatch/scripts/bench/internal/command"
)

func main() { command.Main("bench-start", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-start-")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer os.RemoveAll(dir)
	p, err := prepare(ctx, dir, o)
	if err != nil {
		return err
	}
	r := report{Header: newHeader(o, p)}
	r.Header.print(stdout)
	for _, ranks := range o.ranks {
		for _, c := range p.contests {
			t, err := c.measure(ctx, o.launches, ranks, stderr)
			if err != nil {
				return err
			}
			t.print(stdout)
			r.Tables = append(r.Tables, t)
			if err := r.writeJSON(o.json); err != nil { // all so far
				return err
			}
		}
	}
	r.Figures, err = measureFigures(ctx, p.ddpbatch, dir, o, stderr)
	r.printFigures(stdout)
	return errors.Join(err, r.writeJSON(o.json))
}
