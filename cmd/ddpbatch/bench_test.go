package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/mpi"
)

// The factors are those of nccl-tests, doc/PERFORMANCE.md: 64 MB by 4 ranks in 10 ms are 6.4 GB/s.
func TestBenchSpeed(t *testing.T) {
	for name, bus := range map[string]float64{
		"allreduce": 6.4 * 2 * 3 / 4, "reducescatter": 6.4 * 3 / 4, "allgather": 6.4 * 3 / 4, "alltoall": 6.4 * 3 / 4,
		"gather": 6.4 * 3 / 4, "scatter": 6.4 * 3 / 4, "broadcast": 6.4, "reduce": 6.4, "pingpong": 6.4,
	} {
		r := benchRow{Size: 64_000_000}.withSpeed(10_000, collectiveNamed(name), 4)
		if r.Time != 10_000 || math.Abs(r.AlgBW-6.4) > 1e-9 || math.Abs(r.BusBW-bus) > 1e-9 {
			t.Errorf("%s: time %v, algbw %v, busbw %v; want 10000, 6.4, %v", name, r.Time, r.AlgBW, r.BusBW, bus)
		}
	}
	if r := (benchRow{Size: 4}).withSpeed(0, collectiveNamed("allreduce"), 1); r.AlgBW != 0 || r.BusBW != 0 {
		t.Errorf("a call of no time has the speed %v, %v; want 0", r.AlgBW, r.BusBW)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "4": 4, "64K": 65536, "64k": 65536, "1M": 1 << 20, "2g": 2 << 30, "64G": 1 << 36,
		"": 0, "K": 0, "0": 0, "-4": 0, "4T": 0, "1.5M": 0, "65G": 0, "9223372036854775807": 0, "9223372036854775807G": 0, "4 K": 0, "4KK": 0,
	} {
		got, err := parseBytes("-b", text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "-b is ") {
			t.Errorf("%q: the error does not name the flag: %v", text, err)
		}
	}
}

func TestCollectiveNamed(t *testing.T) {
	for name, want := range map[string]string{"allreduce": "allreduce", "all_reduce": "allreduce", "all-reduce": "allreduce", "reduce_scatter": "reducescatter", "sendrecv": "pingpong"} {
		if c := collectiveNamed(name); c == nil || c.name != want {
			t.Errorf("%s: %v, want %s", name, c, want)
		}
	}
	if c := collectiveNamed("allredoce"); c != nil {
		t.Errorf("allredoce is taken for %s", c.name)
	}
}

// Every collective that moves elements can be called, and no other.
func TestBenchCallsAreComplete(t *testing.T) {
	calls := new(benchBuffers[float32]).calls()
	for _, c := range benchCollectives {
		if _, ok := calls[c.name]; ok == c.unsized {
			t.Errorf("%s: there is a call: %v", c.name, ok)
		}
	}
}

func TestBenchPrinter(t *testing.T) {
	var text bytes.Buffer
	p := benchPrinter{w: &text}
	p.heading()
	p.row(benchRow{Size: 1048576, Count: 262144, Type: "float32", Redop: "sum", Time: 476.25, AlgBW: 2.2, BusBW: 2.2, Wrong: 3})
	lines := strings.Split(text.String(), "\n")
	// the columns of nccl-tests, src/common.cu
	if got := strings.Fields(lines[0]); !slices.Equal(got, strings.Fields("# size count type redop time algbw busbw #wrong")) {
		t.Errorf("heading %q", got)
	}
	if got := strings.Fields(lines[2]); !slices.Equal(got, strings.Fields("1048576 262144 float32 sum 476.2 2.20 2.20 3")) {
		t.Errorf("row %q", got)
	}
	if len(lines[0]) != len(lines[2]) {
		t.Errorf("heading and row have %d and %d columns of text", len(lines[0]), len(lines[2]))
	}
	if p.wrong != 3 {
		t.Errorf("%d wrong elements are counted, want 3", p.wrong)
	}
}

func TestBenchJSON(t *testing.T) {
	var text bytes.Buffer
	p := benchPrinter{w: &text, json: true}
	p.heading()
	p.row(benchRow{Size: 8, Count: 2, Type: "float32", Redop: "sum", Algorithm: "auto", Transport: "tcp"})
	fields := map[string]any{}
	if err := json.Unmarshal(text.Bytes(), &fields); err != nil {
		t.Fatalf("%v in %q", err, text.String())
	}
	for _, name := range strings.Fields("size count type redop time_us algbw busbw wrong algorithm transport") {
		if _, ok := fields[name]; !ok {
			t.Errorf("the object has no %s: %s", name, text.String())
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("the object has %v, too", fields)
	}
}

// A call that leaves a wrong result behind is found by both of its checks.
func TestBenchFindsWrongResults(t *testing.T) {
	var text bytes.Buffer
	b := &benchRank{comm: mpi.Self(), timed: mpi.Self(), ranks: 1, print: benchPrinter{w: &text, json: true}}
	b.o = benchOptions{collective: collectiveNamed("allreduce"), op: opSum, iters: 1, warmup: 1}
	s := &benchBuffers[float32]{b: b, of: func(x int64) float32 { return float32(x) }, out: make([]float32, 600)}
	call := s.allReduce(600)
	if err := b.time(t.Context(), benchRow{}, call); err != nil || b.print.wrong != 0 {
		t.Fatalf("%v, and %d elements are wrong, want none", err, b.print.wrong)
	}
	call.run = func(context.Context) error {
		s.out[599]++
		return nil
	}
	if err := b.time(t.Context(), benchRow{}, call); err != nil || b.print.wrong != 2 {
		t.Errorf("%v, and %d elements are wrong, want one of each check", err, b.print.wrong)
	}
}
