package main

import (
	"math"
	"testing"
)

func TestReadMetrics(t *testing.T) {
	const lines = `{"time":"2026-01-01T00:00:01.000Z","step":10,"loss":5,"comm_share":1}
{"time":"2026-01-01T00:00:02.000Z","step":20,"loss":4,"comm_share":1}
{"time":"2026-01-01T00:00:02.500Z","step":30,"loss":3,"comm_share":0.1}
{"time":"2026-01-01T00:00:03.100Z","step":35,"loss":2,"comm_share":0.4}
{"time":"2026-01-01T00:00:09.000Z","step":35,"loss":2,"comm_share":0.4,"save_s":5}
`
	got, err := readMetrics([]byte(lines), 15)
	// 15 steps in 1.1 s: 10 with a tenth of communication, 5 with four.
	if err != nil || math.Abs(got.StepMS-1100./15) > 1e-9 || got.Loss != 2 || math.Abs(got.Exposed-0.2) > 1e-9 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, warmUp := range []int{31, 36} {
		if _, err := readMetrics([]byte(lines), warmUp); err == nil {
			t.Errorf("nothing to measure after step %d, and no error", warmUp)
		}
	}
	if _, err := readMetrics([]byte("{\n"), 0); err == nil {
		t.Error("half a line is no error")
	}
}

func TestParseProducts(t *testing.T) {
	p := parseProducts(`BenchmarkTraining/library         	1000000000	         0.0008 ns/op
    bench_train_test.go:33: matrix products: OpenBLAS 0.3.21, 1 thread
BenchmarkTraining/dense         	  448878	      2603 ns/op	        77.48 %outside	  12293456 samples/s
BenchmarkTraining/mlp-2         	     648	   1936329 ns/op	         9.327 %outside	     33052 samples/s
BenchmarkTraining/mlp-2         	     648	   1936329 ns/op	        12.5 %outside	     33052 samples/s
`)
	if p.library != "OpenBLAS 0.3.21, 1 thread" || len(p.outside) != 2 || p.outside["mlp"] != 0.09327 || p.outside["dense"] != 0.7748 {
		t.Errorf("%+v", p)
	}
}
