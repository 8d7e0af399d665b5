package main

import (
	"testing"

	"ddpbatch/scripts/bench/internal/gobench"
)

func TestOurCodecsReadsBenchmarks(t *testing.T) {
	metrics := func(speed, ratio float64) map[string]float64 {
		return map[string]float64{"MB/s": speed, "ratio": ratio}
	}
	all, err := ourCodecs([]gobench.Result{
		{Name: "Encode/float32", Metrics: metrics(1019.65, 0.8312)},
		{Name: "Encode/float32", Metrics: metrics(1021.65, 0.8312)},
		{Name: "Encode/delta_f32_1e-5", Metrics: metrics(300, 0.5)},
		{Name: "Decode/float32", Metrics: map[string]float64{"MB/s": 2020}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Kind != "float32" || all[0].Ratio != 0.8312 || all[0].Encode.Median() != 1020.65 ||
		all[0].Decode.Median() != 2020 {
		t.Errorf("parsed %+v", all)
	}
	for _, lacking := range []gobench.Result{
		{Name: "Encode/float32", Metrics: map[string]float64{"MB/s": 1019.65}},
		{Name: "Encode/float32", Metrics: map[string]float64{"ratio": 0.8312}},
		{Name: "Decode/float32", Metrics: map[string]float64{"ns/op": 1}},
	} {
		if all, err := ourCodecs([]gobench.Result{lacking}); err == nil {
			t.Errorf("nothing measured is not an error: %+v", all)
		}
	}
}

func TestZstdLineIsUnderstood(t *testing.T) {
	m := zstdLine.FindStringSubmatch(" 1#float32           :  16777216 ->  15553316 (x1.079),  420.1 MB/s, 1200.3 MB/s ")
	if m == nil || m[1] != "16777216" || m[2] != "15553316" || m[3] != "420.1" || m[4] != "1200.3" {
		t.Errorf("understood %q", m)
	}
}
