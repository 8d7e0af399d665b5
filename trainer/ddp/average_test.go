package ddp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/mpi"
)

// The averages are due in the steps of PyTorch's test_periodic_model_averager: period 4, warm-up 12 to 15, 20 steps.
func TestAveragesAreDueWhenPyTorchsAre(t *testing.T) {
	for warmup, want := range map[int64][]int64{12: {12, 16}, 13: {13, 17}, 14: {14, 18}, 15: {15, 19}, 0: {0, 4, 8, 12, 16}} {
		a, err := NewAverager(t.Context(), mpi.Self(), nil, 4, warmup)
		if err != nil {
			t.Fatal(err)
		}
		var due []int64
		for step := range int64(20) {
			if a.Due(step) {
				due = append(due, step)
			}
		}
		if !slices.Equal(due, want) {
			t.Errorf("warm-up %d: due after %v, want %v", warmup, due, want)
		}
	}
}

// All arrays get the mean, whether they are shorter or longer than the buffer. Values on which all ranks agree stay exact.
func TestAverageGivesAllRanksTheMean(t *testing.T) {
	lengths := []int{3, 0, averageLength + 7, 5, averageLength, 1}
	onRanks(t, func(ctx context.Context, comm *mpi.Comm) error {
		var arrays [][]float32
		for i, n := range lengths {
			x := make([]float32, n)
			for j := range x {
				x[j] = float32(i+j%1000) + float32(comm.Rank()) // each rank differs from the mean
			}
			if n == 1 {
				x[0] = 12345 // like a step count
			}
			arrays = append(arrays, x)
		}
		a, err := NewAverager(ctx, comm, arrays, 1, 0)
		if err != nil {
			return err
		}
		for range 2 { // the second average changes nothing
			if err := a.Average(ctx); err != nil {
				return err
			}
			for i, x := range arrays {
				for j, v := range x {
					want := float32(i+j%1000) + float32(comm.Size()-1)/2
					if len(x) == 1 {
						want = 12345
					}
					if v != want {
						return fmt.Errorf("array %d, element %d is %v, want %v", i, j, v, want)
					}
				}
				if err := sameBits(ctx, comm, fmt.Sprint("array ", i), x); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestAveragerIsChecked(t *testing.T) {
	for want, numbers := range map[string][2]int64{"period": {0, 0}, "warm-up": {1, -1}} {
		if _, err := NewAverager(t.Context(), mpi.Self(), nil, numbers[0], numbers[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one of the %s", numbers, err, want)
		}
	}
}
