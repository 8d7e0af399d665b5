package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func TestCancelEndsACollectiveForAll(t *testing.T) {
	w := newWorld(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan []error, 1)
	buf := [2][]float32{make([]float32, 1<<20), make([]float32, 1<<20)}
	go func() {
		errs <- testkit.Each(2, func(rank int) error { // rank 2 does not come
			if rank == 0 {
				return AllReduce(ctx, w[0], buf[0], Sum)
			}
			return AllReduce(t.Context(), w[1], buf[1], Sum)
		})
	}()
	testkit.Eventually(t, "both ranks are in the collective", func() bool { return w[0].isRunning() && w[1].isRunning() })
	var got []error
	testkit.Within(t, testkit.Patience, func() {
		cancel()
		got = <-errs
	})
	clear(buf[0]) // the caller owns it again: the race detector would report another access
	if !errors.Is(got[0], context.Canceled) {
		t.Errorf("rank 0 got %v", got[0])
	}
	if !errors.Is(got[1], ErrAborted) || errors.Is(got[1], context.Canceled) || !strings.Contains(got[1].Error(), "rank 0 gave up") {
		t.Errorf("rank 1 got %v", got[1])
	}
	// The Comm is broken: every later call returns the first failure.
	if again := w[0].Barrier(t.Context()); again != got[0] {
		t.Errorf("later got %v, want %v", again, got[0])
	}
	// The rank that did not come gets the error in its first call.
	if err := AllReduce(t.Context(), w[2], make([]float32, 1<<20), Sum); !errors.Is(err, ErrAborted) {
		t.Errorf("rank 2 got %v", err)
	}
}

func TestCallWithAnEndedContextFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newWorld(t, 2, nil)
	for name, c := range map[string]*Comm{"of_two": w[0], "self": Self()} {
		if err := c.Barrier(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// If a rank never comes, the others fail after Timeout, and one of them names it.
func TestTimeoutNamesTheRankThatNeverCame(t *testing.T) {
	promptly(t, func() time.Duration {
		w, timeout := newImpatient(t, "auto", 3, 300*time.Millisecond)
		begin := time.Now()
		errs := testkit.Each(2, func(rank int) error { return w[rank].Barrier(t.Context()) })
		took := time.Since(begin) - timeout
		if took < 0 {
			t.Errorf("the time-out came %v too early", -took)
		}
		if starved(errs...) {
			return again
		}
		named := false
		for rank, err := range errs {
			if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "barrier #1") {
				t.Errorf("rank %d got %v", rank, err)
			}
			named = named || strings.Contains(err.Error(), fmt.Sprintf("rank 2: no progress for %v: it has not made a call yet", timeout))
		}
		if !named {
			t.Errorf("nobody names rank 2: %v", errs)
		}
		return took
	})
}

// If a rank's context ends in the middle of a call, the rank gets its context's error, and the errors of the others name the rank. The test
// makes each of everyCall on each transport.
func TestCancelEndsACallInItsMiddle(t *testing.T) {
	const size, victim = 3, 1
	for _, over := range transports {
		for _, tt := range everyCall {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				w := newWorldOn(t, over, size, nil)
				ctx, cancel := context.WithCancelCause(t.Context())
				cause := errors.New("the job is over")
				time.AfterFunc(3*time.Millisecond, func() { cancel(cause) })
				var errs []error
				testkit.Within(t, testkit.Patience, func() {
					errs = testkit.Each(size, func(rank int) error {
						own := t.Context()
						if rank == victim {
							own = ctx
						}
						return untilBroken(own, w[rank], tt)
					})
				})
				for rank, err := range errs {
					var abort *AbortError
					switch {
					case rank == victim && errors.Is(err, context.Canceled):
					case rank != victim && errors.Is(err, ErrAborted) && errors.As(err, &abort) && abort.By == victim:
					default:
						t.Errorf("rank %d, of which %d was cancelled, got %v", rank, victim, err)
					}
				}
				// Shrink keeps all ranks, and the new group works.
				must(t, testkit.Each(size, func(rank int) error {
					c, err := w[rank].Shrink(t.Context())
					if err != nil {
						return fmt.Errorf("shrink: %w", err)
					}
					return goesOn(t.Context(), c, []int{0, 1, 2})
				}))
			})
		}
	}
}

// Ranks make collectives of random kinds and lengths, back to back, until the context of one rank ends at a random moment. Every rank gets
// an error soon, and no rank gets a wrong result before.
func TestCancelAtAnyMomentEndsAllRanks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		size := 2 + dice.IntN(4)
		victim, moment := dice.IntN(size), time.Duration(dice.IntN(20_000))*time.Microsecond
		shared := dice.Uint64()
		w := newWorldOn(t, transports[dice.IntN(len(transports))], size, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(moment, cancel)
		testkit.Within(t, testkit.Patience, func() {
			for rank, err := range testkit.Each(size, func(rank int) error {
				own := t.Context()
				if rank == victim {
					own = ctx
				}
				return untilError(own, w[rank], rand.New(rand.NewPCG(shared, 0)))
			}) {
				if rank == victim && !errors.Is(err, context.Canceled) || rank != victim && !errors.Is(err, ErrAborted) &&
					!errors.Is(err, ErrLost) {
					t.Errorf("rank %d of %d, with rank %d cancelled after %v: %v", rank, size, victim, moment, err)
				}
			}
		})
		closeAll(w)
	}
}

// untilError makes the calls that the dice choose, which are the same on all ranks, until one fails.
func untilError(ctx context.Context, c *Comm, dice *rand.Rand) error {
	buf := make([]int32, 1<<18)
	for {
		part := buf[:dice.IntN(len(buf))>>dice.IntN(18)]
		root := dice.IntN(c.Size())
		for i := range part {
			part[i] = int32(i + c.Rank())
		}
		var err error
		var want int
		switch dice.IntN(3) {
		case 0:
			err, want = c.Barrier(ctx), -1
		case 1:
			err, want = Broadcast(ctx, c, part, root), root
		case 2:
			err, want = AllReduce(ctx, c, part, Max), c.Size()-1
		}
		if err != nil {
			return err
		}
		for i, x := range part {
			if want >= 0 && int(x) != i+want {
				return fmt.Errorf("element %d is %d, want %d", i, x, i+want)
			}
		}
	}
}
