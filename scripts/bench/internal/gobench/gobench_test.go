package gobench

import "testing"

func TestParseReadsBenchmarkLines(t *testing.T) {
	got, err := parse(`goos: linux
BenchmarkTraining/library         	1000000000	         0.0008 ns/op
    bench_train_test.go:33: matrix products: OpenBLAS 0.3.21, 1 thread
BenchmarkEncode/delta_f32_1e-5         	      55	   4113461 ns/op	1019.65 MB/s	         0.8312 ratio	       0 B/op
PASS`)
	if err != nil || len(got) != 2 || got[0].Name != "Training/library" || got[1].Name != "Encode/delta_f32_1e-5" {
		t.Fatalf("%+v, %v", got, err)
	}
	if m := got[1].Metrics; m["ns/op"] != 4113461 || m["MB/s"] != 1019.65 || m["ratio"] != 0.8312 {
		t.Errorf("%v", m)
	}
	for _, bad := range []string{"PASS", "", "BenchmarkX 1 many ns/op"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// Run builds and runs the benchmarks of a package, and parses their output.
func TestRunReadsWhatBenchmarksSay(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a test")
	}
	t.Chdir("../../../..") // the folder in which it builds
	p, err := Build(t.Context(), t.TempDir(), "scripts/bench/internal/gobench")
	if err != nil {
		t.Fatal(err)
	}
	results, _, err := p.Run(t.Context(), []string{"env"}, "^BenchmarkNothing$", "-test.benchtime=1x", "-test.count=2")
	if err != nil || len(results) != 2 || results[1].Name != "Nothing" || results[1].Metrics["things"] != 7 {
		t.Errorf("%+v, %v", results, err)
	}
	if _, _, err := p.Run(t.Context(), nil, "^BenchmarkOfNobody$"); err == nil {
		t.Error("nothing was measured, but that is not an error")
	}
}

func BenchmarkNothing(b *testing.B) { b.ReportMetric(7, "things") }
