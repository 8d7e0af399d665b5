package mpi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// One rank calls once more than the others, which have left.
func TestOneCallMore(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			promptly(t, func() time.Duration {
				w := newWorldOn(t, over, 3, nil)
				var s stopwatch
				errs := testkit.Each(3, func(rank int) error {
					if err := w[rank].Barrier(t.Context()); err != nil {
						return err
					}
					s.called()
					if rank > 0 {
						return w[rank].Close()
					}
					return w[0].Barrier(t.Context())
				})
				if !errors.Is(errs[0], ErrLeft) || !strings.Contains(errs[0].Error(), "barrier #2: rank ") || !strings.Contains(errs[0].Error(), "it has left the group after call #1") {
					t.Errorf("got %v", errs[0])
				}
				must(t, errs[1:])
				return s.sinceLast()
			})
		})
	}
}

// A rank does not come to a call, of each kind that there is: the others are told its name when the time-out is over, and what it last did.
func TestAbsence(t *testing.T) {
	const size, absent, timeout = 3, 1, 300 * time.Millisecond
	for _, over := range transports {
		for _, tt := range everyCall {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				t.Parallel() // it mostly waits
				promptly(t, func() time.Duration {
					w := newImpatient(t, over, size, timeout)
					met := testkit.Each(size, func(rank int) error { return w[rank].Barrier(t.Context()) })
					if err := errors.Join(met...); errors.Is(err, ErrTimeout) {
						return again // they are all there, and one did not get the processor for so long
					} else if err != nil {
						t.Error(err)
					}
					begin := time.Now()
					errs := testkit.Each(size, func(rank int) error {
						if rank == absent {
							return nil
						}
						return untilBroken(t.Context(), w[rank], tt)
					})
					took := time.Since(begin) - timeout
					if took < 0 {
						t.Errorf("the time-out came %v too early", -took)
					}
					if starved(errs...) || tt.name != "messages" && late(errs, absent) {
						return again
					}
					want := fmt.Sprintf("rank %d: no progress for %v", absent, timeout)
					for rank, err := range errs {
						if tt.name == "messages" && rank != absent+1 && errors.Is(err, ErrTimeout) {
							continue // it waits for a rank that waits for the absent one, and may find that
						}
						if rank != absent && (!errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "barrier #1")) {
							t.Errorf("rank %d got %v, want %q", rank, err, want)
						}
					}
					return took
				})
			})
		}
	}
}

// late reports whether errs name a rank that did come. On a busy machine it may have come after the time-out.
func late(errs []error, absent int) bool {
	for rank := range errs {
		name := fmt.Sprintf("rank %d: no progress", rank)
		if rank != absent && slices.ContainsFunc(errs, func(err error) bool { return err != nil && strings.Contains(err.Error(), name) }) {
			return true
		}
	}
	return false
}
