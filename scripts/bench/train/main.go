// Command train trains the same models with ddpbatch and with PyTorch on this machine, in turn, and compares
// them. scripts/bench-train builds and starts it, in the root of the repository.
package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	"ddpbatch/internal/usage"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/stats"
)

var bench = command.Program[options]{Name: "bench-train", Parse: parseOptions, Do: run}

func main() { bench.Main() }

func run(ctx context.Context, o options, dir string, stdout, stderr io.Writer) error {
	sides, err := prepare(ctx, dir, o)
	if err != nil {
		return err
	}
	if err := writeData(ctx, dir); err != nil {
		return fmt.Errorf("write the data: %w", err)
	}
	fmt.Fprintln(stderr, "matrix products of ddpbatch")
	p, err := measureProducts(ctx, dir)
	if err != nil {
		return err
	}
	all := results{Header: newHeader(o, sides, p.library)}
	all.Header.Print(stdout)
	for _, ranks := range o.ranks {
		first := len(all.Rows)
		for _, m := range modelsOf(o.models) {
			r, err := measure(ctx, o, setting{m, ranks}, sides, dir, stderr)
			if err != nil {
				return err
			}
			if share, ok := p.outside[m.name]; ok && ranks == 1 {
				r.Outside = stats.Number(share)
			}
			all.Rows = append(all.Rows, r)
			if err := o.WriteJSON(all); err != nil { // everything so far
				return err
			}
		}
		printTable(stdout, ranks, all.Rows[first:])
	}
	fmt.Fprintf(stdout, "\nMatrix products of PyTorch: %s.\n", all.Rows[0].BLAS)
	return nil
}

// options are the options of the command line.
type options struct {
	command.Common
	models []string
	ranks  []int
}

const usageText = `ddpbatch beside PyTorch's DistributedDataParallel (gloo): the same models on the same rows and cores, launched in turn.

  ./scripts/bench-train --quick
  ./scripts/bench-train --json train.json >train.md
  ./scripts/bench-train --model mlp,cnn --ranks 2 --launches 9

Tables are Markdown, on standard output; progress goes to standard error.
needs: Go and, on Debian, apt-get install python3-torch libopenblas0-pthread

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	f := command.NewFlags(&o.Common, usageText, "", nil)
	f.TakeProgram()
	f.Words(&o.models, "model", "all", modelNames(), ", or all")
	f.Numbers(&o.ranks, "ranks", "1,2", 1, mostRanks, "numbers of ranks; there must be a core for each")
	if err := f.Parse(args, stderr); err != nil {
		return o, err
	}
	if n := slices.Max(o.ranks); n > runtime.NumCPU() {
		return o, usage.Errorf("-ranks: %d ranks need as many cores, but this machine has %d: leave them out", n, runtime.NumCPU())
	}
	return o, nil
}

// mostRanks is the largest number of ranks with which an epoch has more than ten steps.
const mostRanks = 2
