package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are what the command line asks for.
type options struct {
	collectives []string
	transports  []string
	ranks       []int
	peers       []string
	begin, end  int64 // bytes
	factor      int64
	launches    int
	budget      time.Duration // for the calls of one size
	alloc       bool
	program     string // ddpbatch; "": this tree's is built
	json        string // file; "": none
}

// usageError is a command line that cannot be understood.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

var (
	knownCollectives = []string{"allreduce", "broadcast", "reduce", "allgather", "reducescatter", "alltoall", "pingpong", "barrier", "startup"}
	knownTransports  = []string{"shm", "tcp"}
	knownPeers       = []string{"openmpi", "mpich", "gloo"}
)

const usageText = `ddpbatch beside Open MPI, MPICH and PyTorch's gloo: same collectives, sizes and ranks, launched in turn.

  ./scripts/bench-peers --quick
  ./scripts/bench-peers --collective allreduce,broadcast --ranks 2 --transport shm,tcp --alloc --json peers.json
  ./scripts/bench-peers --alloc --json peers.json >peers.md

Tables are Markdown, on standard output; progress goes to standard error.

`

func parseOptions(args []string, stderr io.Writer) (options, error) {
	f := flag.NewFlagSet("bench-peers", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	collectives := f.String("collective", "all", "`LIST` of "+strings.Join(knownCollectives, ", ")+", or all")
	transports := f.String("transport", "shm,tcp", "`LIST` of shm, tcp; gloo has only tcp")
	ranks := f.String("ranks", "2,4", "`LIST` of numbers of ranks; pingpong has 2 at all times")
	peers := f.String("peers", strings.Join(knownPeers, ","), "`LIST` of those to run beside ddpbatch")
	begin := f.String("b", "4", "smallest `SIZE`; K, M and G are powers of 1024")
	end := f.String("e", "64M", "largest `SIZE`")
	factor := f.Int64("f", 4, "from one size to the next, `TIMES`")
	launches := f.Int("launches", 7, "of each program; fewer than 6 give no 95 % interval")
	budget := f.Duration("budget", 200*time.Millisecond, "`TIME` for the calls of one size; at least 7 and at most 10,000 are made")
	alloc := f.Bool("alloc", false, "ours with buffers from comm.Alloc, too (allreduce)")
	quick := f.Bool("quick", false, "a first look: 3 launches, few sizes up to 4M, a tenth of the time for each; what is named beside it stays")
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
	}
	if *quick {
		given := map[string]bool{}
		f.Visit(func(f *flag.Flag) { given[f.Name] = true })
		quicken(given, launches, factor, end, budget)
	}
	o := options{factor: *factor, launches: *launches, budget: *budget, alloc: *alloc, program: *program, json: *json}
	if o.collectives, err = words("collective", *collectives, knownCollectives); err != nil {
		return o, err
	}
	if o.transports, err = words("transport", *transports, knownTransports); err != nil {
		return o, err
	}
	if o.peers, err = words("peers", *peers, knownPeers); err != nil {
		return o, err
	}
	if o.ranks, err = numbers(*ranks); err != nil {
		return o, err
	}
	if o.begin, err = parseSize("b", *begin); err != nil {
		return o, err
	}
	if o.end, err = parseSize("e", *end); err != nil {
		return o, err
	}
	return o, o.check()
}

func quicken(given map[string]bool, launches *int, factor *int64, end *string, budget *time.Duration) {
	if !given["launches"] {
		*launches = 3
	}
	if !given["f"] {
		*factor = 32
	}
	if !given["e"] {
		*end = "4M"
	}
	if !given["budget"] {
		*budget = 20 * time.Millisecond
	}
}

func (o options) check() error {
	switch {
	case o.end < o.begin:
		return usagef("-e %d is smaller than -b %d", o.end, o.begin)
	case o.factor < 2 || o.factor > 1<<20:
		return usagef("-f is %d; it must be 2 to %d", o.factor, 1<<20)
	case len(o.settings()) == 0:
		return usagef("-e %d is too small for an element of each rank", o.end)
	case o.launches < 1 || o.launches > 1000:
		return usagef("-launches is %d; it must be 1 to 1000", o.launches)
	case o.budget < time.Millisecond || o.budget > time.Minute:
		return usagef("-budget is %v; it must be 1ms to 1m", o.budget)
	}
	return nil
}

// words reads a list of known words. Names may be written with _ or -, as other libraries do.
func words(flag, list string, known []string) ([]string, error) {
	if list == "all" {
		return known, nil
	}
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		word = strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSpace(word))
		if !slices.Contains(known, word) {
			return nil, usagef("-%s: there is no %q; it is one of %s", flag, word, strings.Join(known, ", "))
		}
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out, nil
}

func numbers(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 2 || n > 256 {
			return nil, usagef("-ranks: %q is no number from 2 to 256", word)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}

// maxSize keeps a slip of the pen from filling the memory.
const maxSize = 1 << 32

// parseSize reads a number of bytes: 4, 64K, 64M.
func parseSize(flag, text string) (int64, error) {
	digits, shift := text, 0
	if i := strings.IndexAny(text, "KMGkmg"); i >= 0 && i == len(text)-1 {
		digits = text[:i]
		shift = 10 * (1 + strings.Index("KMG", strings.ToUpper(text[i:])))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > maxSize>>shift || n<<shift < 4 {
		return 0, usagef("-%s: %q is no size from 4 to 4G bytes, such as 64K", flag, text)
	}
	return n << shift, nil
}
