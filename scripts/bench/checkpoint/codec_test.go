package main

import "testing"

func TestParseBenchmarks(t *testing.T) {
	all, err := parseBenchmarks(`goos: linux
BenchmarkEncode/float32         	      55	   4113461 ns/op	1019.65 MB/s	         0.8312 ratio	       0 B/op
BenchmarkEncode/float32         	      55	   4113461 ns/op	1021.65 MB/s	         0.8312 ratio
BenchmarkEncode/delta_f32_1e-5-2	      55	   4113461 ns/op	300 MB/s	         0.5 ratio
BenchmarkDecode/float32         	      99	   2113461 ns/op	2020.00 MB/s
PASS`)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Kind != "float32" || all[0].Ratio != 0.8312 || all[0].Encode.Median() != 1020.65 || all[0].Decode.Median() != 2020 {
		t.Errorf("parsed %+v", all)
	}
	if _, err := parseBenchmarks("PASS"); err == nil {
		t.Error("nothing measured is no error")
	}
}

func TestZstdLine(t *testing.T) {
	m := zstdLine.FindStringSubmatch(" 1#float32           :  16777216 ->  15553316 (x1.079),  420.1 MB/s, 1200.3 MB/s ")
	if m == nil || m[1] != "16777216" || m[2] != "15553316" || m[3] != "420.1" || m[4] != "1200.3" {
		t.Errorf("understood %q", m)
	}
}
