package main

import (
	"testing"
)

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
