package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// usageError is a command line that cannot be understood.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

const usageText = `ddpbatch beside PyTorch's DistributedDataParallel (gloo): the same models on the same rows and cores, launched in turn.

  ./scripts/bench-train --quick
  ./scripts/bench-train --json train.json >train.md
  ./scripts/bench-train --model mlp,cnn --ranks 2 --launches 9

Tables are Markdown, on standard output; progress goes to standard error.

`

func parseOptions(args []string, stderr io.Writer) (options, error) {
	f := flag.NewFlagSet("bench-train", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	models := f.String("model", "all", "`LIST` of "+strings.Join(modelNames(), ", ")+", or all")
	ranks := f.String("ranks", "1,2", "`LIST` of numbers of ranks; there must be a core for each")
	launches := f.Int("launches", 7, "of each side; fewer than 6 give no 95 % interval")
	quick := f.Bool("quick", false, "a first look: 3 launches")
	data := f.String("data", filepath.Join("..", "shared", "data"), "`FOLDER` with mnist/t10k-*.gz and text/tinyshakespeare.txt; what is not there is drawn at random")
	program := f.String("ddpbatch", "", "measure `PROGRAM`, not this tree's")
	json := f.String("json", "", "write all samples to `FILE`, too")
	err := f.Parse(args)
	switch {
	case err == flag.ErrHelp:
		fmt.Fprint(stderr, usageText)
		f.SetOutput(stderr)
		f.PrintDefaults()
		return options{}, err
	case err != nil:
		return options{}, usagef("%v", err)
	case f.NArg() > 0:
		return options{}, usagef("%q is not expected; every option has a name", f.Arg(0))
	case *launches < 1 || *launches > 1000:
		return options{}, usagef("-launches is %d; it must be 1 to 1000", *launches)
	}
	o := options{launches: *launches, data: *data, json: *json}
	if *quick && !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(strings.TrimLeft(a, "-"), "launches") }) {
		o.launches = 3
	}
	if *program != "" {
		if o.program, err = filepath.Abs(*program); err != nil {
			return o, err
		}
		if _, err := os.Stat(o.program); err != nil {
			return o, usagef("-ddpbatch: %v", err)
		}
	}
	if o.models, err = known(*models); err != nil {
		return o, err
	}
	o.ranks, err = numbers(*ranks)
	return o, err
}

// known reads a list of models.
func known(list string) ([]string, error) {
	if list == "all" {
		return modelNames(), nil
	}
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); !slices.Contains(modelNames(), word) {
			return nil, usagef("-model: there is no %q; it is one of %s", word, strings.Join(modelNames(), ", "))
		}
		out = append(out, word)
	}
	return out, nil
}

// mostRanks is where an epoch still has more than ten steps.
const mostRanks = 2

func numbers(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > mostRanks {
			return nil, usagef("-ranks: %q is no number from 1 to %d", word, mostRanks)
		}
		if n > runtime.NumCPU() {
			return nil, usagef("-ranks: %d ranks need as many cores, and there are %d here: leave them out", n, runtime.NumCPU())
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}
