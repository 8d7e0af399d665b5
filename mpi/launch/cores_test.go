package launch

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		all  []int
		i, n int
		want []int // nil: none
	}{
		{[]int{0, 1}, 0, 2, []int{0}},
		{[]int{0, 1}, 1, 2, []int{1}},
		{[]int{0, 1}, 0, 1, []int{0, 1}},
		{[]int{0, 1}, 2, 3, nil},
		{[]int{3, 5, 8, 64, 700}, 0, 2, []int{3, 5, 8}},
		{[]int{3, 5, 8, 64, 700}, 1, 2, []int{64, 700}},
		{[]int{7}, 1, 1, nil},
	} {
		var mask unix.CPUSet
		for _, core := range tt.all {
			mask.Set(core)
		}
		part := share(&mask, tt.i, tt.n)
		var got []int
		for core := range 1024 {
			if part != nil && part.IsSet(core) {
				got = append(got, core)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("part %d of %d of %v: got %v, want %v", tt.i, tt.n, tt.all, got, tt.want)
		}
	}
}
