package mpi

import (
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// A user's operation that panics breaks the Comm: the others hear of it, and whoever recovers can close it.
func TestPanicInOperation(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			boom := NewOp("boom", true, func(_, _, _ []int32) { panic("boom") })
			testkit.Within(t, testkit.Moment, func() {
				testkit.Each(2, func(rank int) error {
					defer w[rank].Close()
					defer func() {
						if p := recover(); p != "boom" {
							t.Errorf("rank %d recovered %v", rank, p)
						}
						if err := w[rank].Err(); err == nil || !strings.Contains(err.Error(), "panic") {
							t.Errorf("rank %d is broken by %v", rank, err)
						}
					}()
					return AllReduce(t.Context(), w[rank], []int32{1}, boom)
				})
			})
		})
	}
}
