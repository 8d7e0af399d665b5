// Command bench runs ddpbatch's collectives and those of other libraries on this machine, in turn, and
// compares them row by row. scripts/bench-peers builds and starts it, in the root of the repository.
//
// Each side is timed by its own small program, and all by the same method, which docs/cli/bench.md describes: ours by `ddpbatch bench`, MPI
// libraries by peers/mpi.c, PyTorch by peers/gloo.py.
package main

import (
	"context"
	"fmt"
	"io"

	"ddpbatch/scripts/bench/internal/command"
)

var bench = command.Program[options]{Name: "bench-peers", Parse: parseOptions, Do: run}

func main() { bench.Main() }

func run(ctx context.Context, o options, dir string, stdout, stderr io.Writer) error {
	sides, err := prepare(ctx, dir, o)
	if err != nil {
		return err
	}
	settings := o.settings()
	r := results{Header: newHeader(o, sides, settings)}
	r.Header.Print(stdout)
	fmt.Fprintf(stderr, "%d tables, %d launches in turn: about %v on a quiet machine\n",
		len(settings), countLaunches(o, sides, settings), estimate(o, sides, settings))

	for _, s := range settings {
		t, err := measure(ctx, o, s, sides, stderr)
		if err != nil {
			return err
		}
		t.print(stdout)
		r.Tables = append(r.Tables, t)
		if err := o.WriteJSON(r); err != nil { // everything so far, because the rest may take an hour
			return err
		}
	}
	return nil
}
