package ddp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var elementBytes = map[string]int{"float16": 2, "float32": 4, "float64": 8}

// The examples of PyTorch's test_c10d_common.py.
func TestAssignLikePyTorchsTests(t *testing.T) { // without the race detector
	of := func(kind string, n int) gradientSize { return gradientSize{kind, n * elementBytes[kind]} }
	var alternating, small []gradientSize
	for range 3 {
		alternating = append(alternating, of("float32", 50), of("float64", 25))
	}
	for range 4 {
		small = append(small, of("float32", 10))
	}
	single := []gradientSize{of("float32", 100), of("float32", 200), of("float32", 100), of("float32", 50)}
	for _, tt := range []struct {
		tensors []gradientSize
		limits  []int
		buckets [][]int
		limitOf []int
	}{
		{single, []int{400}, [][]int{{0}, {1}, {2}, {3}}, []int{400, 400, 400, 400}},
		{alternating, []int{400}, [][]int{{0, 2}, {1, 3}, {4}, {5}}, []int{400, 400, 400, 400}},
		{small, []int{40, 80}, [][]int{{0}, {1, 2}, {3}}, []int{40, 80, 80}},
		{alternating, []int{200, 400}, [][]int{{0}, {1}, {2, 4}, {3, 5}}, []int{200, 200, 400, 400}},
		{nil, []int{400}, nil, nil},
	} {
		buckets, limitOf := assign(tt.tensors, tt.limits)
		if !reflect.DeepEqual(buckets, tt.buckets) || !slices.Equal(limitOf, tt.limitOf) {
			t.Errorf("assign(%v, %v) is %v, %v, want %v, %v", tt.tensors, tt.limits, buckets, limitOf, tt.buckets, tt.limitOf)
		}
	}
}

// testdata/bucket_assignment.py asked PyTorch.
func TestAssignLikePyTorch(t *testing.T) { // without the race detector
	text, err := os.ReadFile(filepath.Join("testdata", "bucket_assignment.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Tensors [][2]any
			Limits  []int
			Buckets [][]int
			LimitOf []int `json:"bucket_limits"`
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != 60 {
		t.Fatalf("%d cases, want 60", len(golden.Cases))
	}
	for i, c := range golden.Cases {
		var tensors []gradientSize
		for _, pair := range c.Tensors {
			kind := pair[1].(string)
			tensors = append(tensors, gradientSize{kind, int(pair[0].(float64)) * elementBytes[kind]})
		}
		buckets, limitOf := assign(tensors, c.Limits)
		if !reflect.DeepEqual(buckets, c.Buckets) || !slices.Equal(limitOf, c.LimitOf) {
			t.Errorf("case %d: assign(%v, %v) is %v, %v, PyTorch has %v, %v", i, tensors, c.Limits, buckets, limitOf, c.Buckets, c.LimitOf)
		}
	}
}

// Whatever is assigned: each tensor is in one bucket, in order, with others of its kind, and a bucket was below its limit before it got its last
// one.
func TestAssignProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := rapid.SliceOf(rapid.Custom(func(t *rapid.T) gradientSize {
			return gradientSize{rapid.SampledFrom([]string{"float16", "float32"}).Draw(t, "kind"), rapid.IntRange(0, 500).Draw(t, "bytes")}
		})).Draw(t, "tensors")
		limits := rapid.SliceOfN(rapid.IntRange(0, 1000), 1, 3).Draw(t, "limits")
		buckets, limitOf := assign(tensors, limits)
		var seen []int
		for i, bucket := range buckets {
			bytes := 0
			for j, index := range bucket {
				if tensors[index].kind != tensors[bucket[0]].kind {
					t.Fatalf("bucket %d has two kinds", i)
				}
				if j > 0 && (index <= bucket[j-1] || bytes >= limitOf[i]) {
					t.Fatalf("bucket %d, %v, goes on after %d bytes, its limit is %d", i, bucket, bytes, limitOf[i])
				}
				bytes += tensors[index].bytes
			}
			seen = append(seen, bucket...)
		}
		slices.Sort(seen)
		for i, index := range seen {
			if i != index {
				t.Fatalf("%v are assigned, of %d", seen, len(tensors))
			}
		}
		if len(seen) != len(tensors) {
			t.Fatalf("%d of %d are assigned", len(seen), len(tensors))
		}
	})
}
