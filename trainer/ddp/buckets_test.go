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

// The cases are those of PyTorch's test_c10d_common.py whose elements have one type.
func TestAssignMatchesPyTorchsTests(t *testing.T) { // without the race detector
	for _, tt := range []struct {
		bytes   []int
		limits  []int
		buckets [][]int
	}{
		{[]int{400, 800, 400, 200}, []int{400}, [][]int{{0}, {1}, {2}, {3}}},
		{[]int{40, 40, 40, 40}, []int{40, 80}, [][]int{{0}, {1, 2}, {3}}},
		{nil, []int{400}, nil},
	} {
		if buckets := assign(tt.bytes, tt.limits); !reflect.DeepEqual(buckets, tt.buckets) {
			t.Errorf("assign(%v, %v) is %v, want %v", tt.bytes, tt.limits, buckets, tt.buckets)
		}
	}
}

// The expected buckets come from PyTorch, through testdata/bucket_assignment.py. The tensors there have several types. Each type has
// buckets of its own, and all buckets are ordered by their first tensors.
func TestAssignMatchesPyTorch(t *testing.T) { // without the race detector
	text, err := os.ReadFile(filepath.Join("testdata", "bucket_assignment.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Tensors [][2]any
			Limits  []int
			Buckets [][]int
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != 60 {
		t.Fatalf("%d cases, want 60", len(golden.Cases))
	}
	elementBytes := map[string]int{"float16": 2, "float32": 4, "float64": 8}
	for i, c := range golden.Cases {
		bytes, indices := map[string][]int{}, map[string][]int{} // by type
		for at, pair := range c.Tensors {
			kind := pair[1].(string)
			bytes[kind] = append(bytes[kind], int(pair[0].(float64))*elementBytes[kind])
			indices[kind] = append(indices[kind], at)
		}
		var buckets [][]int
		for kind, sizes := range bytes {
			for _, bucket := range assign(sizes, c.Limits) {
				for j, at := range bucket {
					bucket[j] = indices[kind][at]
				}
				buckets = append(buckets, bucket)
			}
		}
		slices.SortFunc(buckets, slices.Compare)
		if !reflect.DeepEqual(buckets, c.Buckets) {
			t.Errorf("case %d: of %v with limits %v it is %v, PyTorch has %v", i, c.Tensors, c.Limits, buckets, c.Buckets)
		}
	}
}

// Each gradient is in exactly one bucket, in order, and a bucket was below its limit before it got its last gradient.
func TestAssignFillsBucketsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.IntRange(0, 500)).Draw(t, "bytes")
		limits := rapid.SliceOfN(rapid.IntRange(0, 1000), 1, 3).Draw(t, "limits")
		next := 0
		for i, bucket := range assign(sizes, limits) {
			filled, limit := 0, limits[min(i, len(limits)-1)]
			for j, index := range bucket {
				if index != next || j > 0 && filled >= limit {
					t.Fatalf("bucket %d, %v, goes on after %d bytes, its limit is %d", i, bucket, filled, limit)
				}
				filled, next = filled+sizes[index], next+1
			}
		}
		if next != len(sizes) {
			t.Fatalf("%d of %d are assigned", next, len(sizes))
		}
	})
}
