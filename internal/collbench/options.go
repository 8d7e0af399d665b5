package collbench

import (
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/usage"
	"ddpbatch/mpi"
)

// Options are what is asked for: SetNames, SetTransport and Check complete them.
type Options struct {
	collective           *collective
	Begin, End, Factor   int64 // sizes, in bytes
	Ranks                int   // 0: not given
	Transport, Algorithm string
	element              *elementType
	op                   operation
	Alloc                bool // buffers from comm.Alloc
	Deterministic        bool
	Encrypt              bool // data
	Explain              bool // a row for each algorithm
	Iters, Warmup        int  // 0: by the budget
	Budget               time.Duration
	JSON                 bool
	Words                []string // "bench", and those behind it on the command line, which ranks on this machine are started with
}

const (
	maxSize   = 1 << 36 // bytes; a slip of the pen has more
	maxFactor = 1 << 20
	maxRanks  = 1024 // on one machine
	minCalls  = 7
	maxCalls  = 10_000
)

// ParseBytes reads a number of bytes, as 4, 64K or 1G.
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

// Collective is the name of what is timed.
func (o *Options) Collective() string { return o.collective.name }

// SetNames sets what has a name.
func (o *Options) SetNames(collective, element, op string) error {
	if o.collective = collectiveNamed(collective); o.collective == nil {
		return usage.Errorf("there is no collective %q; it is one of %s", collective, strings.Join(Names(), ", "))
	}
	var names []string
	for i, e := range elementTypes {
		if names = append(names, e.name); e.name == element {
			o.element = &elementTypes[i]
		}
	}
	if o.element == nil {
		return usage.Errorf("there is no element type %q; it is one of %s", element, strings.Join(names, ", "))
	}
	names = nil
	for _, known := range ops {
		if names = append(names, known.name); known.name == op {
			o.op = known
			return nil
		}
	}
	return usage.Errorf("there is no reduce operation %q; it is one of %s", op, strings.Join(names, ", "))
}

// SetTransport takes what DDPBATCH_TRANSPORT says where the flag leaves it open. The ranks would follow the variable, so
// that a row would name another transport than it was measured on where both speak and differ.
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

// Check refuses what cannot be done, and flags that would do nothing; given tells of the flags that were typed.
func (o *Options) Check(given func(flag string) bool) error {
	switch c := o.collective; {
	case given("n") && (o.Ranks < 1 || o.Ranks > maxRanks):
		return usage.Errorf("-n is %d; it must be 1 to %d", o.Ranks, maxRanks)
	case o.Explain && c.chooses == "":
		return usage.Errorf("%s has no choice of algorithms to explain", c.name)
	case o.Algorithm != "auto" && c.chooses == "":
		return usage.Errorf("%s has no choice of algorithms: leave --algorithm out", c.name)
	case given("op") && !c.reduces:
		return usage.Errorf("%s reduces nothing: leave --op out", c.name)
	case c.unsized() && (given("type") || given("alloc")):
		return usage.Errorf("%s has no buffers of elements: leave --type and --alloc out", c.name)
	case o.Encrypt && (o.Transport == "shm" || c.name == "store"):
		return usage.Errorf("--encrypt is for data that goes over TCP: leave it out")
	case o.Explain && o.Algorithm != "auto":
		return usage.Errorf("--explain times all algorithms: leave --algorithm out")
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
		cfg.Algorithm = o.Algorithm // of the other collectives, the calls themselves tell
	}
	if err := cfg.Validate(); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

// checkWorld reports whether so many ranks can do what is asked.
func (o *Options) checkWorld(ranks int) error {
	c, least := o.collective, o.element.width
	if c.blocks {
		least *= int64(ranks)
	}
	switch {
	case ranks < c.atLeast:
		return usage.Errorf("%s needs %d ranks, not %d", c.name, c.atLeast, ranks)
	case !c.unsized() && o.largest() < least:
		return usage.Errorf("the largest size is %d, too small for an element of each rank: %d bytes", o.largest(), least)
	}
	return nil
}

// largest is the last size of the row.
func (o *Options) largest() int64 {
	size := o.Begin
	for size*o.Factor <= o.End {
		size *= o.Factor
	}
	return size
}

// config is what the ranks join with.
func (o *Options) config() mpi.Config {
	cfg := mpi.DefaultConfig()
	cfg.Transport, cfg.Deterministic, cfg.Encrypt = o.Transport, o.Deterministic, o.Encrypt
	return cfg
}

// settings words what rows of text do not have.
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
