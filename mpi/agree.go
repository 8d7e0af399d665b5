package mpi

import (
	"context"
	"errors"

	"ddpbatch/internal/failure"
)

// RemoteError is the error of another rank, as [Agree] and [FromRoot] return it. Its method Rank returns that rank's number in the Comm.
// Text returns the text of that rank's error, at most its first 4 KiB. errors.Is finds the class of the error: the first one of the classes
// passed to the call that the error matches.
type RemoteError = failure.Error

// Agree returns nil if err is nil on all ranks, and otherwise an error on every rank: the rank's own err if it has one, or else a
// [*RemoteError] of the first rank that has one. So no rank continues alone and waits in a collective for a rank that has given up:
//
//	part, err := load(c.Rank())
//	if err := mpi.Agree(ctx, c, err, fs.ErrNotExist); err != nil {
//		return err // on all ranks; errors.Is(err, fs.ErrNotExist) on all, if it was the first rank's
//	}
//
// classes are the errors that errors.Is is to find in another rank's error. They must be the same in the same order on all ranks. An error
// that matches several of them counts as the first.
//
// Agree is collective. It costs one all-reduce, and a broadcast if there is an error. If Agree itself fails, the Comm is broken, and the
// error matches both err and the failure.
func Agree(ctx context.Context, c *Comm, err error, classes ...error) error {
	first, f := []int32{int32(c.Size())}, failure.Failure{}
	if err != nil {
		first[0], f = int32(c.Rank()), *failure.Of(c.Rank(), err, classes)
	}
	if e := AllReduce(ctx, c, first, Min); e != nil {
		return errors.Join(err, e)
	}
	rank := int(first[0])
	if rank == c.Size() {
		return nil
	}
	f, e := BroadcastObject(ctx, c, f, rank)
	switch {
	case e != nil:
		return errors.Join(err, e)
	case err != nil:
		return err
	}
	return f.Elsewhere(classes)
}

// FromRoot calls f on rank root alone, and gives every rank what f returns. The value travels as in [BroadcastObject]. If f fails, root
// returns f's own error, and the other ranks return a [*RemoteError] and the zero value. classes are as in [Agree].
//
// FromRoot is collective. If FromRoot itself fails, the error on root also matches f's error.
func FromRoot[T any](ctx context.Context, c *Comm, root int, f func() (T, error), classes ...error) (T, error) {
	var value T
	var err error
	var a answer[T]
	if c.Rank() == root {
		if value, err = f(); err == nil {
			a.Value = value
		}
		a.Failure = failure.Of(root, err, classes)
	}
	a, e := BroadcastObject(ctx, c, a, root)
	switch {
	case e != nil:
		return value, errors.Join(err, e)
	case c.Rank() == root:
		return value, err
	case a.Failure != nil:
		return value, a.Failure.Elsewhere(classes)
	}
	return a.Value, nil
}

// answer is what root sends to the others: a value or a failure.
type answer[T any] struct {
	Value   T
	Failure *failure.Failure
}
