package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/usage"
	"ddpbatch/scripts/bench/internal/command"
)

// options are the options of the command line.
type options struct {
	command.Common
	collectives []string
	transports  []string
	ranks       []int
	peers       []string
	begin, end  int64 // bytes
	factor      int64
	budget      time.Duration // for the calls of one size
	alloc       bool
}

var (
	knownCollectives = slices.Concat(
		[]string{"allreduce", "broadcast", "reduce", "scan"}, inBlocks, []string{"pingpong", "barrier", "startup"})
	knownTransports = []string{"shm", "tcp"}
	knownPeers      = []string{"openmpi", "mpich", "gloo"}
)

const usageText = `ddpbatch beside Open MPI, MPICH and PyTorch's gloo: same collectives, sizes and ranks, launched in turn.

  ./scripts/bench-peers --quick
  ./scripts/bench-peers --collective allreduce,broadcast --ranks 2 --transport shm,tcp --alloc --json peers.json
  ./scripts/bench-peers --alloc --json peers.json >peers.md

Tables are Markdown, on standard output; progress goes to standard error.
needs: Go and, on Debian, apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev python3-torch

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	f := command.NewFlags(&o.Common, usageText, ", few sizes up to 4M, a tenth of the time for each",
		map[string]string{"f": "32", "e": "4M", "budget": "20ms"})
	f.TakeProgram()
	f.Words(&o.collectives, "collective", "all", knownCollectives, ", or all")
	f.Words(&o.transports, "transport", "shm,tcp", knownTransports, "; gloo has only tcp")
	f.Numbers(&o.ranks, "ranks", "2,4", 2, 256, "numbers of ranks; pingpong has 2 at all times")
	f.Peers(&o.peers, knownPeers)
	command.Text(f, &o.begin, "b", "4", "smallest `SIZE`; K, M and G are powers of 1024", parseSize)
	command.Text(f, &o.end, "e", "64M", "largest `SIZE`", parseSize)
	f.Int64Var(&o.factor, "f", 4, "from one size to the next, `TIMES`")
	f.DurationVar(&o.budget, "budget", 200*time.Millisecond, "`TIME` for the calls of one size; at least 7 and at most 10,000 are made")
	f.BoolVar(&o.alloc, "alloc", false, "ours with buffers from comm.Alloc, too (allreduce)")
	if err := f.Parse(args, stderr); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o options) check() error {
	switch {
	case o.end < o.begin:
		return usage.Errorf("-e %d is smaller than -b %d", o.end, o.begin)
	case o.factor < 2 || o.factor > 1<<20:
		return usage.Errorf("-f is %d; it must be 2 to %d", o.factor, 1<<20)
	case len(o.settings()) == 0:
		return usage.Errorf("-e %d is too small for an element of each rank", o.end)
	case o.budget < time.Millisecond || o.budget > time.Minute:
		return usage.Errorf("-budget is %v; it must be 1ms to 1m", o.budget)
	}
	return nil
}

// maxSize keeps a typing error from filling the memory.
const maxSize = 1 << 32

// parseSize parses a number of bytes: 4, 64K, 64M.
func parseSize(flag, text string) (int64, error) {
	digits, shift := text, 0
	if i := strings.IndexAny(text, "KMGkmg"); i >= 0 && i == len(text)-1 {
		digits = text[:i]
		shift = 10 * (1 + strings.Index("KMG", strings.ToUpper(text[i:])))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > maxSize>>shift || n<<shift < 4 {
		return 0, usage.Errorf("-%s: %q is not a size from 4 to 4G bytes, such as 64K", flag, text)
	}
	return n << shift, nil
}

// setting is the setting of one table.
type setting struct {
	Collective string `json:"collective"`
	Transport  string `json:"transport"`
	Ranks      int    `json:"ranks"`
}

func (s setting) String() string {
	return fmt.Sprintf("%s, %s, %d ranks", s.Collective, s.Transport, s.Ranks)
}

// inBlocks are the collectives whose sizes are those of all ranks' blocks (docs/cli/bench.md).
var inBlocks = []string{
	"allgather", "reducescatter", "alltoall", "gather", "scatter", "allgatherv", "reducescatterv", "alltoallv", "gatherv", "scatterv",
}

// unsized reports whether a table has only one row, without a size.
func (s setting) unsized() bool { return s.Collective == "barrier" || s.Collective == "startup" }

// rowSizes returns the sizes for which all sides have rows: in whole elements of 4 bytes, the same number in each block.
func (o options) rowSizes(s setting) []int64 {
	if s.unsized() {
		return []int64{0}
	}
	unit := int64(4)
	if slices.Contains(inBlocks, s.Collective) {
		unit *= int64(s.Ranks)
	}
	var sizes []int64
	for size := o.begin; size <= o.end; size *= o.factor {
		if size >= unit {
			sizes = append(sizes, size/unit*unit)
		}
	}
	return sizes
}

// settings returns the settings of all tables that have a row.
func (o options) settings() []setting {
	var out []setting
	for _, collective := range o.collectives {
		for _, transport := range o.transports {
			for i, ranks := range o.ranks {
				if collective == "pingpong" {
					ranks = 2
					if i > 0 {
						continue
					}
				}
				if s := (setting{collective, transport, ranks}); len(o.rowSizes(s)) > 0 {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// launchLimit returns when a launch is abandoned: long after the longest launch on a busy machine.
func (o options) launchLimit() time.Duration {
	limit := time.Minute + 20*o.budget*time.Duration(len(o.rowSizes(setting{}))) + time.Duration(o.end)*200 // 0.2 s a MB
	return limit.Round(time.Second)
}

func countLaunches(o options, sides []side, settings []setting) int {
	n := 0
	for _, s := range settings {
		n += o.Launches * len(takingPart(sides, s))
	}
	return n
}

// estimate returns roughly how long the comparison takes on a quiet machine. A row takes its budget, or the time of its fewest calls at
// about 1 GB/s per rank.
func estimate(o options, sides []side, settings []setting) time.Duration {
	var total time.Duration
	for _, s := range settings {
		var rows time.Duration
		for _, size := range o.rowSizes(s) {
			rows += max(o.budget*12/10, time.Duration(size)*6*time.Duration(s.Ranks))
		}
		for _, side := range takingPart(sides, s) {
			total += time.Duration(o.Launches) * (side.startup + rows)
		}
	}
	return total.Round(time.Second)
}
