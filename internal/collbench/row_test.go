package collbench

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// The factors are those of nccl-tests, doc/PERFORMANCE.md. With 4 ranks, 64 MB in 10 ms are 6.4 GB/s.
func TestBandwidthsAreThoseOfNCCLTests(t *testing.T) {
	for name, bus := range map[string]float64{
		"allreduce": 6.4 * 2 * 3 / 4, "reducescatter": 6.4 * 3 / 4, "allgather": 6.4 * 3 / 4, "alltoall": 6.4 * 3 / 4,
		"gather": 6.4 * 3 / 4, "scatter": 6.4 * 3 / 4, "allgatherv": 6.4 * 3 / 4, "reducescatterv": 6.4 * 3 / 4, "alltoallv": 6.4 * 3 / 4,
		"broadcast": 6.4, "reduce": 6.4, "pingpong": 6.4,
	} {
		r := result{Size: 64_000_000}.withTimes(callTimes{10_000, 9_000, 11_000, 20_000}, collectiveNamed(name), 4)
		if r.Time != 10_000 || math.Abs(r.AlgBW-6.4) > 1e-9 || math.Abs(r.BusBW-bus) > 1e-9 {
			t.Errorf("%s: time %v, algbw %v, busbw %v; want 10000, 6.4, %v", name, r.Time, r.AlgBW, r.BusBW, bus)
		}
	}
	if r := (result{Size: 4}).withTimes(callTimes{}, collectiveNamed("allreduce"), 1); r.AlgBW != 0 || r.BusBW != 0 {
		t.Errorf("a call of no time has the speed %v, %v; want 0", r.AlgBW, r.BusBW)
	}
}

func TestPrinterPrintsHeadingAndRows(t *testing.T) {
	var text bytes.Buffer
	p := printer{w: &text}
	p.heading("", Options{collective: collectiveNamed("allreduce"), Transport: "shm", Algorithm: "auto", Deterministic: true}, 2, "")
	p.row(result{Size: 1048576, Count: 262144, Type: "float32", Redop: "sum", Time: 476.25, Min: 300, Avg: 500.5, Max: 12345,
		AlgBW: 2.2, BusBW: 2.2, Wrong: 3})
	settings, rest, _ := strings.Cut(text.String(), "\n")
	if !strings.HasSuffix(settings, ": allreduce, 2 ranks, transport shm, algorithm auto, deterministic") {
		t.Errorf("settings %q", settings)
	}
	lines := strings.Split(rest, "\n")
	// the columns of nccl-tests, src/common.cu, and the times of osu_allreduce -f
	if got := strings.Fields(lines[0]); !slices.Equal(got, strings.Fields("# size count type redop time min avg max algbw busbw #wrong")) {
		t.Errorf("heading %q", got)
	}
	if got := strings.Fields(lines[2]); !slices.Equal(got,
		strings.Fields("1048576 262144 float32 sum 476.2 300.0 500.5 12345 2.20 2.20 3")) {
		t.Errorf("row %q", got)
	}
	if len(lines[0]) != len(lines[2]) {
		t.Errorf("heading and row have %d and %d columns of text", len(lines[0]), len(lines[2]))
	}
}

func TestJSONRowsHaveTheirFields(t *testing.T) {
	var text bytes.Buffer
	p := printer{w: &text, json: true}
	p.heading("", Options{}, 2, "")
	p.row(result{Size: 8, Count: 2, Type: "float32", Redop: "sum", Algorithm: "auto", Transport: "tcp"})
	fields := map[string]any{}
	if err := json.Unmarshal(text.Bytes(), &fields); err != nil {
		t.Fatalf("%v in %q", err, text.String())
	}
	for _, name := range strings.Fields("size count type redop time_us min_us avg_us max_us algbw busbw wrong algorithm transport") {
		if _, ok := fields[name]; !ok {
			t.Errorf("the object has no %s: %s", name, text.String())
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("the object has %v, too", fields)
	}
}
