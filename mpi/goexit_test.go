package mpi

import (
	"errors"
	"runtime"
	"testing"

	"ddpbatch/internal/testkit"
)

// A user's operation that ends its goroutine, as t.FailNow does, breaks the Comm like one that panics: the others hear of it, and the Comm
// can be closed.
func TestGoexitInOperation(t *testing.T) {
	exit := NewOp("exit", true, func(_, _, _ []int32) { runtime.Goexit() })
	for _, over := range transports {
		for _, wait := range []bool{true, false} {
			w := newWorldOn(t, over, 2, nil)
			testkit.Within(t, testkit.Patience, func() {
				testkit.Each(2, func(rank int) error {
					defer func() {
						if w[rank].Err() == nil {
							t.Errorf("%s, waited for %v: rank %d is not broken", over, wait, rank)
						}
						w[rank].Close()
					}()
					if wait {
						return AllReduce(t.Context(), w[rank], []int32{1}, exit)
					}
					return IAllReduce(t.Context(), w[rank], []int32{1}, exit).Wait(t.Context())
				})
			})
		}
	}
}

// What a user's operation panics with is found in the error.
func TestPanicWithAnError(t *testing.T) {
	why := errors.New("boom")
	w := newWorldOn(t, "local", 2, nil)
	errs := testkit.Each(2, func(rank int) error {
		return AllReduce(t.Context(), w[rank], []int32{1}, NewOp("boom", true, func(_, _, _ []int32) { panic(why) }))
	})
	if !errors.Is(errors.Join(errs...), why) {
		t.Errorf("got %v", errs)
	}
}
