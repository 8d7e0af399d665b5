package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/mpi"
)

// benchOptions are bench's flags.
type benchOptions struct {
	collective           *benchCollective
	begin, end, factor   int64 // sizes, in bytes
	ranks                int   // 0: not given
	transport, algorithm string
	element              *benchElement
	op                   benchOp
	alloc                bool // buffers from comm.Alloc
	deterministic        bool
	encrypt              bool // data
	explain              bool // a row for each algorithm
	iters, warmup        int  // 0: by the budget
	budget               time.Duration
	json                 bool
}

const (
	maxBenchSize   = 1 << 36 // bytes; a slip of the pen has more
	maxBenchFactor = 1 << 20
	maxBenchRanks  = 1024 // on one machine
	minBenchCalls  = 7
	maxBenchCalls  = 10_000
)

// parseBytes reads a number of bytes, as 4, 64K or 1G.
func parseBytes(flag, text string) (int64, error) {
	digits, shift := text, 0
	if last := len(text) - 1; last > 0 {
		if unit := strings.IndexByte("KMG", text[last]&^0x20); unit >= 0 {
			digits, shift = text[:last], 10*(unit+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > maxBenchSize>>shift {
		return 0, usagef("%s is %q; it must be a size from 1 to 64G bytes, such as 64K", flag, text)
	}
	return n << shift, nil
}

// setNames sets what has a name.
func (o *benchOptions) setNames(collective, element, op string) error {
	if o.collective = collectiveNamed(collective); o.collective == nil {
		return usagef("there is no collective %q; it is one of %s", collective, collectiveNames())
	}
	var names []string
	for i, e := range benchElements {
		if names = append(names, e.name); e.name == element {
			o.element = &benchElements[i]
		}
	}
	if o.element == nil {
		return usagef("there is no element type %q; it is one of %s", element, strings.Join(names, ", "))
	}
	names = nil
	for _, known := range benchOps {
		if names = append(names, known.name); known.name == op {
			o.op = known
			return nil
		}
	}
	return usagef("there is no reduce operation %q; it is one of %s", op, strings.Join(names, ", "))
}

// setTransport takes what DDPBATCH_TRANSPORT says where the flag leaves it open. The ranks would follow the variable, so
// that a row would name another transport than it was measured on where both speak and differ.
func (o *benchOptions) setTransport(variable string) error {
	switch {
	case variable == "":
	case o.transport == "auto":
		o.transport = variable
	case o.transport != variable:
		return usagef("--transport is %q and DDPBATCH_TRANSPORT is %q; leave one of them out", o.transport, variable)
	}
	return nil
}

// check refuses what cannot be done, and flags that would do nothing; given tells of the flags that were typed.
func (o *benchOptions) check(given func(flag string) bool) error {
	switch c := o.collective; {
	case given("n") && (o.ranks < 1 || o.ranks > maxBenchRanks):
		return usagef("-n is %d; it must be 1 to %d", o.ranks, maxBenchRanks)
	case o.explain && explained(c.name) == "":
		return usagef("%s has no choice of algorithms to explain", c.name)
	case o.algorithm != "auto" && explained(c.name) == "":
		return usagef("%s has no choice of algorithms: leave --algorithm out", c.name)
	case given("op") && !c.reduces:
		return usagef("%s reduces nothing: leave --op out", c.name)
	case c.unsized && (given("type") || given("alloc")):
		return usagef("%s has no buffers of elements: leave --type and --alloc out", c.name)
	case o.encrypt && (o.transport == "shm" || c.name == "store"):
		return usagef("--encrypt is for data that goes over TCP: leave it out")
	case o.explain && o.algorithm != "auto":
		return usagef("--explain times all algorithms: leave --algorithm out")
	case o.end < o.begin:
		return usagef("-e is %d, smaller than -b, which is %d", o.end, o.begin)
	case o.factor < 2 || o.factor > maxBenchFactor:
		return usagef("-f is %d; it must be 2 to %d", o.factor, maxBenchFactor)
	case o.iters < 0 || o.warmup < 0:
		return usagef("--iters is %d and --warmup is %d; neither may be negative", o.iters, o.warmup)
	case o.iters > 100*maxBenchCalls || o.warmup > 100*maxBenchCalls:
		return usagef("--iters and --warmup may be up to %d", 100*maxBenchCalls)
	case o.budget < time.Millisecond || o.budget > time.Hour:
		return usagef("--budget is %v; it must be 1ms to 1h", o.budget)
	}
	cfg := o.config()
	if o.collective.name == "allreduce" {
		cfg.Algorithm = o.algorithm // of the other collectives, the calls themselves tell
	}
	if err := cfg.Validate(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// checkWorld tells whether so many ranks can do what is asked.
func (o *benchOptions) checkWorld(ranks int) error {
	c, least := o.collective, o.element.width
	if c.blocks {
		least *= int64(ranks)
	}
	switch {
	case ranks < c.atLeast:
		return usagef("%s needs %d ranks, not %d", c.name, c.atLeast, ranks)
	case !c.unsized && o.largest() < least:
		return usagef("the largest size is %d, too small for an element of each rank: %d bytes", o.largest(), least)
	}
	return nil
}

// largest is the last size of the row.
func (o *benchOptions) largest() int64 {
	size := o.begin
	for size*o.factor <= o.end {
		size *= o.factor
	}
	return size
}

// config is what the ranks join with.
func (o *benchOptions) config() mpi.Config {
	cfg := mpi.DefaultConfig()
	cfg.Transport, cfg.Deterministic, cfg.Encrypt = o.transport, o.deterministic, o.encrypt
	return cfg
}

// settings words what rows of text do not have.
func (o *benchOptions) settings() string {
	text := ""
	if o.collective.name != "store" && o.collective.name != "startup" {
		text = ", transport " + o.transport
		if o.encrypt {
			text += ", encrypted"
		}
	}
	if explained(o.collective.name) != "" && !o.explain {
		text += ", algorithm " + o.algorithm
	}
	if o.collective.reduces && o.deterministic {
		text += ", deterministic"
	}
	if o.alloc {
		text += ", buffers from comm.Alloc"
	}
	return text
}

// args are the words that say the same to another process, less -n.
func (o *benchOptions) args() []string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	args := []string{
		"bench", o.collective.name, "-b", number(o.begin), "-e", number(o.end), "-f", number(o.factor),
		"--transport", o.transport, "--algorithm", o.algorithm,
		"--iters", strconv.Itoa(o.iters), "--warmup", strconv.Itoa(o.warmup), "--budget", o.budget.String(),
	}
	if !o.collective.unsized {
		args = append(args, "--type", o.element.name)
	}
	if o.collective.reduces {
		args = append(args, "--op", o.op.name)
	}
	if o.alloc {
		args = append(args, "--alloc")
	}
	if o.encrypt {
		args = append(args, "--encrypt")
	}
	if o.explain {
		args = append(args, "--explain")
	}
	if !o.deterministic {
		args = append(args, "--deterministic=false")
	}
	if o.json {
		args = append(args, "--json")
	}
	return args
}

// benchCollective is what is told of a collective apart from how it is called.
type benchCollective struct {
	name    string
	atLeast int  // ranks
	blocks  bool // a row's count is that of one rank's block, its size that of all ranks' (as in nccl-tests)
	reduces bool
	oneWay  bool // the time is half of rank 0's
	unsized bool // moves no elements: one row

	twoBuffers bool // in and out

	// bus is busbw/algbw for n ranks, of nccl-tests' doc/PERFORMANCE.md: what makes the figure that of the
	// links, whatever the number of ranks. nil: 1.
	bus func(n float64) float64
}

func allButOne(n float64) float64 { return (n - 1) / n }

var benchCollectives = []*benchCollective{
	{name: "allreduce", reduces: true, bus: func(n float64) float64 { return 2 * allButOne(n) }},
	{name: "reduce", reduces: true},
	{name: "reducescatter", reduces: true, blocks: true, twoBuffers: true, bus: allButOne},
	{name: "scan", reduces: true},
	{name: "exscan", reduces: true},
	{name: "broadcast"},
	{name: "allgather", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "gather", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "scatter", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "alltoall", blocks: true, twoBuffers: true, bus: allButOne},
	{name: "pingpong", atLeast: 2, twoBuffers: true, oneWay: true},
	{name: "barrier", unsized: true},
	{name: "store", unsized: true},
	{name: "startup", unsized: true},
}

// collectiveNamed takes other libraries' spellings, too: all_reduce, reduce-scatter; sendrecv is pingpong. nil: there is none.
func collectiveNamed(name string) *benchCollective {
	name = strings.NewReplacer("_", "", "-", "").Replace(name)
	if name == "sendrecv" {
		name = "pingpong"
	}
	i := slices.IndexFunc(benchCollectives, func(c *benchCollective) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return benchCollectives[i]
}

func collectiveNames() string {
	var names []string
	for _, c := range benchCollectives {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
