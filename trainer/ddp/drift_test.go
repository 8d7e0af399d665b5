package ddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"ddpbatch/mpi"
)

func TestCheckNamesRanksThatDrifted(t *testing.T) {
	for _, test := range []struct {
		ranks []int // the version of the parameters that each rank has
		want  DriftError
		text  string
	}{
		{[]int{0, 1}, DriftError{Ranks: []int{1}, Like: 0, World: 2},
			"after step 7 the parameters have drifted apart: rank 1 differs from rank 0; no majority says which is right; first in p2"},
		{[]int{1, 0, 0}, DriftError{Ranks: []int{0}, Like: 1, Most: true, World: 3},
			"after step 7 the parameters have drifted apart: rank 0 differs from the majority, 2 of 3 ranks; first in p2"},
		{[]int{0, 1, 0, 0}, DriftError{Ranks: []int{1}, Like: 0, Most: true, World: 4}, ""},
		{[]int{0, 1, 1, 0}, DriftError{Ranks: []int{1, 2}, Like: 0, World: 4},
			"after step 7 the parameters have drifted apart: ranks 1 2 differ from rank 0; no majority says which is right; first in p2"},
		{[]int{0, 1, 2, 2}, DriftError{Ranks: []int{0, 1}, Like: 2, World: 4}, ""},
	} {
		onWorld(t, len(test.ranks), func(ctx context.Context, comm *mpi.Comm) error {
			params := newTrained(shapes...)
			d := NewDrift(comm, params)
			if err := d.Check(ctx, 6); err != nil {
				return err
			}
			if v := test.ranks[comm.Rank()]; v > 0 { // one bit of p2, and many bits of a later parameter
				x := params[2].Value
				x[100] = math.Float32frombits(math.Float32bits(x[100]) ^ uint32(v))
				params[4].Value[0] = 99
			}
			err := d.Check(ctx, 7)
			var got *DriftError
			if !errors.As(err, &got) {
				return fmt.Errorf("error %v, want a DriftError", err)
			}
			want := test.want
			want.Step, want.Param = 7, "p2"
			if !reflect.DeepEqual(*got, want) {
				return fmt.Errorf("got %+v, want %+v", *got, want)
			}
			if test.text != "" && err.Error() != test.text {
				return fmt.Errorf("error %q, want %q", err, test.text)
			}
			return nil
		})
	}
}

func TestDriftDoesNotAllocate(t *testing.T) { // without the race detector
	d := NewDrift(mpi.Self(), newTrained(shapes...))
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Check(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a check, want none", n)
	}
}

// A digest depends on every bit.
func TestDigestFeelsEveryBit(t *testing.T) {
	x := make([]float32, 37)
	seen := map[uint32]bool{digestOf(x): true}
	for i := range x {
		for bit := range 32 {
			x[i] = math.Float32frombits(1 << bit)
			seen[digestOf(x)] = true
			x[i] = 0
		}
	}
	if want := 37*32 + 1; len(seen) != want {
		t.Errorf("%d different digests, want %d", len(seen), want)
	}
}

func BenchmarkDigest(b *testing.B) {
	x := make([]float32, 1<<20)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		digestOf(x)
	}
}
