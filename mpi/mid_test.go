package mpi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// A context ends in the middle of each of everyCall, on each transport: the rank gets its context's error and lets go of its
// buffers, the others are told whose it was.
func TestCancelInTheMiddle(t *testing.T) {
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
				// What is left can be used.
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
