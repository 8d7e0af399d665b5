package collbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

const (
	checkedRanks = 3
	checkedCount = 50 // elements
)

// checked measures one row of a collective with ranks in this process, and returns the row and the ranks' errors. After each call of the
// library, spoil may change the buffers of a rank.
func checked(t *testing.T, name string, spoil func(s *buffers[float32], call int)) (row result, errs []error) {
	t.Helper()
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(checkedRanks), mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	o := Options{
		collective: collectiveNamed(name), op: opSum, Algorithm: "auto", Iters: 2, Warmup: 1, JSON: true,
		Begin: 4 * checkedRanks * checkedCount, End: 4 * checkedRanks * checkedCount, Factor: 2, // one row
	}
	o.element = &elementType{"float32", 4, func(ctx context.Context, b *bench) (func(int) timedCall, error) {
		s := &buffers[float32]{b: b, of: func(x int64) float32 { return float32(x) }}
		err := s.alloc(ctx, int(b.o.largest()/4))
		return func(count int) timedCall {
			call, made := s.call(count), 0
			run := call.run
			call.run = func(ctx context.Context) error {
				defer func() { made++ }()
				err := run(ctx)
				spoil(s, made)
				return err
			}
			return call
		}, err
	}}
	errs = testkit.Each(checkedRanks, func(rank int) (err error) {
		defer func() { err = errors.Join(err, comms[rank].Close()) }()
		b := newBench(Process{Out: &bytes.Buffer{}}, o, comms[rank])
		if rank == 0 {
			b.print.w = &text
		}
		return b.rows(t.Context(), 0)
	})
	if err := json.Unmarshal(text.Bytes(), &row); err != nil {
		t.Fatalf("%v in %q; the ranks say %v", err, text.String(), errs)
	}
	return row, errs
}

// One wrong element, on any rank that has a result and in any checked call, shows in the row, and makes that rank and rank 0 exit with 1.
func TestFindsEachWrongElement(t *testing.T) {
	for _, c := range collectives {
		if c.unsized() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if row, errs := checked(t, c.name, func(*buffers[float32], int) {}); row.Wrong != 0 || errors.Join(errs...) != nil {
				t.Fatalf("unspoilt: %d are wrong, %v", row.Wrong, errs)
			}
			for rank := range checkedRanks {
				for _, at := range []int{0, 1, 5, 6} { // two checked calls, one warm-up, two timed, two checked: 0, 1; 2; 3, 4; 5, 6
					row, errs := checked(t, c.name, func(s *buffers[float32], call int) {
						if s.b.rank == rank && call == at {
							s.out[lengthOfBlock(c, rank)-1]++
						}
					})
					counts := hasResult(c.name, rank)
					if got := row.Wrong; counts && got != 1 || !counts && got != 0 {
						t.Errorf("rank %d, call %d: %d are wrong", rank, at, got)
					}
					for r, err := range errs {
						if want := counts && (r == 0 || r == rank); (err != nil) != want {
							t.Errorf("rank %d, call %d: rank %d says %v", rank, at, r, err)
						}
					}
				}
			}
		})
	}
}

// Each row of an explained barrier was measured with the algorithm that it names.
func TestExplainedBarrierGoesByEachAlgorithm(t *testing.T) {
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(checkedRanks), mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{collective: collectiveNamed("barrier"), element: &elementTypes[0], Algorithm: "auto", Explain: true, Iters: 1, Warmup: 1}
	errs := testkit.Each(checkedRanks, func(rank int) (err error) {
		defer func() { err = errors.Join(err, comms[rank].Close()) }()
		return newBench(Process{Out: &bytes.Buffer{}}, o, comms[rank]).rows(t.Context(), 0)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var calls bytes.Buffer
	if err := comms[0].WriteFlight(&calls); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dissemination", "binomial", "star"} {
		if !strings.Contains(calls.String(), name) {
			t.Errorf("no call went by %s: %s", name, calls.String())
		}
	}
}

// hasResult reports whether the collective leaves a defined result in a rank's buffer.
func hasResult(collective string, rank int) bool {
	switch collective {
	case "reduce", "gather", "gatherv":
		return rank == 0
	case "pingpong":
		return rank < 2
	}
	return true
}

// lengthOfBlock returns the length of a rank's block. Uneven blocks have 25, 50 and 75 elements, as 1 + 2 + 3 = 6.
func lengthOfBlock(c *collective, rank int) int {
	if c.uneven {
		return checkedCount * checkedRanks * (rank + 1) / 6
	}
	return checkedCount
}

// The result of an earlier call, which a late or lost message could leave, counts as wrong.
func TestFindsStaleResults(t *testing.T) {
	old := make([]float32, checkedRanks*checkedCount)
	row, _ := checked(t, "allreduce", func(s *buffers[float32], call int) {
		switch {
		case s.b.rank == 1 && call == 0:
			copy(old, s.out)
		case s.b.rank == 1 && call == 1:
			copy(s.out, old)
		}
	})
	if row.Wrong < checkedCount {
		t.Errorf("of a result of the call before, %d elements are wrong", row.Wrong)
	}
}

// A count either arrives complete or counts as a wrong element.
func TestCountArrivesWholeOrIsWrong(t *testing.T) {
	for _, count := range []int64{0, 1, 1 << 40} {
		if got := countIn(pairOf(count)); got != count {
			t.Errorf("%d arrives as %d", count, got)
		}
	}
	for _, pair := range [][]int64{{0, 0}, {-1, 0}, {5, 5}, {0, -2}} {
		if got := countIn(pair); got != 1 {
			t.Errorf("%v counts %d, want 1", pair, got)
		}
	}
}

func TestTimesOfGivesMedianMinMeanMax(t *testing.T) {
	if got, want := timesOf([]float64{9, 1, 2, 4}), (callTimes{3, 1, 4, 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
