package collbench

import (
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/usage"
	"ddpbatch/mpi"
)

// Options are the options of a bench. SetNames, SetTransport and Check complete them.
type Options struct {
	collective           *collective
	Begin, End, Factor   int64 // sizes, in bytes
	Ranks                int   // 0: not given
	Transport, Algorithm string
	element              *elementType
	op                   operation
	Alloc                bool // buffers from comm.Alloc
	Deterministic        bool
	Encrypt              bool // encrypt the ranks' data
	Explain              bool // a row for each algorithm
	Iters, Warmup        int  // 0: as many as fit into the budget
	Budget               time.Duration
	JSON                 bool
	Words                []string // "bench" and the words after it on the command line, with which ranks on this machine are started
}

const (
	maxSize   = 1 << 36 // bytes; more is a typing error
	maxFactor = 1 << 20
	maxRanks  = 1024 // on one machine
	minCalls  = 7
	maxCalls  = 10_000
)

// ParseBytes parses a number of bytes, such as 4, 64K or 1G. flag is the flag's name, for the error.
func ParseBytes(flag, text string) (int64, error) {
	digits, shift := text, 0
	if last := len(text) - 1; last > 0 {
		if unit := strings.IndexByte("KMG", text[last]&^0x20); unit >= 0 {
			digits, shift = text[:last], 10*(unit+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > maxSize>>shift {
		return 0, usage.Errorf("%s is %q; it must be a size from 1 to 64G bytes, such as 64K", flag, text)
	}
	return n << shift, nil
}

// Collective returns the name of what is timed.
func (o *Options) Collective() string { return o.collective.name }

// SetNames sets the collective, the element type and the operation by their names.
func (o *Options) SetNames(collective, element, op string) error {
	if o.collective = collectiveNamed(collective); o.collective == nil {
		return usage.Errorf("unknown collective %q; it must be one of %s", collective, strings.Join(Names(), ", "))
	}
	var names []string
	for i, e := range elementTypes {
		if names = append(names, e.name); e.name == element {
			o.element = &elementTypes[i]
		}
	}
	if o.element == nil {
		return usage.Errorf("unknown element type %q; it must be one of %s", element, strings.Join(names, ", "))
	}
	names = nil
	for _, known := range ops {
		if names = append(names, known.name); known.name == op {
			o.op = known
			return nil
		}
	}
	return usage.Errorf("unknown reduce operation %q; it must be one of %s", op, strings.Join(names, ", "))
}

// SetTransport sets the transport to the value of DDPBATCH_TRANSPORT if the flag is "auto". If both are set and differ, it returns an
// error: the ranks would follow the variable, and rows would name another transport than they were measured on.
func (o *Options) SetTransport(variable string) error {
	switch {
	case variable == "":
	case o.Transport == "auto":
		o.Transport = variable
	case o.Transport != variable:
		return usage.Errorf("--transport is %q and DDPBATCH_TRANSPORT is %q; leave one of them out", o.Transport, variable)
	}
	return nil
}

// Check refuses options that are out of range or contradict each other, and flags without an effect. given reports whether a flag was on
// the command line.
func (o *Options) Check(given func(flag string) bool) error {
	switch c := o.collective; {
	case given("n") && (o.Ranks < 1 || o.Ranks > maxRanks):
		return usage.Errorf("-n is %d; it must be 1 to %d", o.Ranks, maxRanks)
	case o.Explain && c.chooses == "":
		return usage.Errorf("%s does not have several algorithms to explain: remove --explain", c.name)
	case o.Algorithm != "auto" && c.chooses == "":
		return usage.Errorf("%s does not have several algorithms: remove --algorithm", c.name)
	case given("op") && !c.reduces:
		return usage.Errorf("%s does not reduce: remove --op", c.name)
	case c.unsized() && (given("type") || given("alloc")):
		return usage.Errorf("%s does not have buffers of elements: remove --type and --alloc", c.name)
	case o.Encrypt && (o.Transport == "shm" || c.name == "store"):
		return usage.Errorf("--encrypt is only for data that goes over TCP: remove it")
	case o.Explain && o.Algorithm != "auto":
		return usage.Errorf("--explain times all algorithms: remove --algorithm")
	case o.End < o.Begin:
		return usage.Errorf("-e is %d, smaller than -b, which is %d", o.End, o.Begin)
	case o.Factor < 2 || o.Factor > maxFactor:
		return usage.Errorf("-f is %d; it must be 2 to %d", o.Factor, maxFactor)
	case o.Iters < 0 || o.Warmup < 0:
		return usage.Errorf("--iters is %d and --warmup is %d; neither may be negative", o.Iters, o.Warmup)
	case o.Iters > 100*maxCalls || o.Warmup > 100*maxCalls:
		return usage.Errorf("--iters and --warmup may be up to %d", 100*maxCalls)
	case o.Budget < time.Millisecond || o.Budget > time.Hour:
		return usage.Errorf("--budget is %v; it must be 1ms to 1h", o.Budget)
	}
	cfg := o.config()
	if o.collective.name == "allreduce" {
		cfg.Algorithm = o.Algorithm // for other collectives, the calls check it
	}
	if err := cfg.Validate(); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

// checkWorld returns an error if the options do not fit the number of ranks.
func (o *Options) checkWorld(ranks int) error {
	c, least := o.collective, o.element.width
	if c.blocks {
		least *= int64(ranks)
	}
	switch {
	case ranks < c.atLeast:
		return usage.Errorf("%s needs %d ranks, not %d", c.name, c.atLeast, ranks)
	case !c.unsized() && o.largest() < least:
		return usage.Errorf("the largest size is %d bytes; it must be at least %d, one element for each rank", o.largest(), least)
	}
	return nil
}

// largest returns the last of the sizes.
func (o *Options) largest() int64 {
	size := o.Begin
	for size*o.Factor <= o.End {
		size *= o.Factor
	}
	return size
}

// config returns the configuration with which the ranks join.
func (o *Options) config() mpi.Config {
	cfg := mpi.DefaultConfig()
	cfg.Transport, cfg.Deterministic, cfg.Encrypt = o.Transport, o.Deterministic, o.Encrypt
	return cfg
}

// settings describes, for the heading, the settings that rows of text do not show.
func (o *Options) settings() string {
	text := ""
	if o.collective.name != "store" && o.collective.name != "startup" {
		text = ", transport " + o.Transport
		if o.Encrypt {
			text += ", encrypted"
		}
	}
	if o.collective.chooses != "" && !o.Explain {
		text += ", algorithm " + o.Algorithm
	}
	if o.collective.reduces && o.Deterministic {
		text += ", deterministic"
	}
	if o.Alloc {
		text += ", buffers from comm.Alloc"
	}
	return text
}
