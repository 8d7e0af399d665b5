package main

import (
	"testing"

	"ddpbatch/scripts/bench/internal/gobench"
)

func TestProductsAreReadFromBenchmarks(t *testing.T) {
	outside := func(share float64) map[string]float64 { return map[string]float64{"ns/op": 2603, "%outside": share} }
	p := newProducts([]gobench.Result{
		{Name: "Training/library", Metrics: map[string]float64{"ns/op": 0.0008}},
		{Name: "Training/dense", Metrics: outside(77.48)},
		{Name: "Training/mlp", Metrics: outside(9.327)}, {Name: "Training/mlp", Metrics: outside(12.5)},
	}, "x\n    loop_test.go:33: matrix products: OpenBLAS 0.3.21, 1 thread\ny\n")
	if p.library != "OpenBLAS 0.3.21, 1 thread" || len(p.outside) != 2 || p.outside["mlp"] != 0.09327 || p.outside["dense"] != 0.7748 {
		t.Errorf("%+v", p)
	}
}
