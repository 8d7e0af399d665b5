package main

import (
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"ddpbatch/scripts/bench/internal/command"
)

// options are what the command line asks for.
type options struct {
	models   []string
	ranks    []int
	launches int
	data     string
	program  string // ddpbatch; "": this tree's is built
	json     string // file; "": none
}

const usageText = `ddpbatch beside PyTorch's DistributedDataParallel (gloo): the same models on the same rows and cores, launched in turn.

  ./scripts/bench-train --quick
  ./scripts/bench-train --json train.json >train.md
  ./scripts/bench-train --model mlp,cnn --ranks 2 --launches 9

Tables are Markdown, on standard output; progress goes to standard error.

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	f := command.NewFlags(usageText, "", nil)
	f.TakeProgram()
	models := f.String("model", "all", "`LIST` of "+strings.Join(modelNames(), ", ")+", or all")
	ranks := f.String("ranks", "1,2", "`LIST` of numbers of ranks; there must be a core for each")
	f.StringVar(&o.data, "data", filepath.Join("..", "shared", "data"), "`FOLDER` with mnist/t10k-*.gz and text/tinyshakespeare.txt; what is not there is drawn at random")
	if err := f.Parse(args, stderr); err != nil {
		return o, err
	}
	o.launches, o.program, o.json = f.Launches, f.Program, f.JSON
	if o.models, err = command.Words("model", *models, modelNames()); err != nil {
		return o, err
	}
	if o.ranks, err = command.Numbers("ranks", *ranks, 1, mostRanks); err != nil {
		return o, err
	}
	if n := slices.Max(o.ranks); n > runtime.NumCPU() {
		return o, command.Usagef("-ranks: %d ranks need as many cores, and there are %d here: leave them out", n, runtime.NumCPU())
	}
	return o, nil
}

// mostRanks is where an epoch still has more than ten steps.
const mostRanks = 2
