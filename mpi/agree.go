package mpi

import (
	"context"
	"errors"

	"ddpbatch/internal/failure"
)

// RemoteError is the error of another rank, as [Agree] and [FromRoot] return it. Its method Rank is the number of that rank in the Comm,
// and Text what that rank's error says, the first 4 KiB of it. errors.Is finds the error's class: the first of those that the call names
// which it is.
type RemoteError = failure.Error

// Agree returns nil if err is nil on all ranks, and otherwise an error on every rank: a rank's own err, where it has one, or a
// [*RemoteError] of the first rank that has. So no rank goes on alone, and waits in a collective for one that has given up:
//
//	part, err := load(c.Rank())
//	if err := mpi.Agree(ctx, c, err, fs.ErrNotExist); err != nil {
//		return err // on all ranks; errors.Is(err, fs.ErrNotExist) on all, if it was the first rank's
//	}
//
// classes are the errors that errors.Is is to find in another rank's, too: the same ones in the same order on all ranks. An error that is
// several of them is the first there.
//
// Agree is collective. It costs one all-reduce, and a broadcast where there is an error. If it fails itself, the Comm is broken, and what
// it returns matches both err and the failure.
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

// FromRoot calls f on rank root alone, and gives every rank what it returns: the value, which travels as that of [BroadcastObject], or an
// error, which is f's own on root, and a [*RemoteError] and no value on the others. classes are as those of [Agree].
//
// FromRoot is collective. If it fails itself, what it returns on root matches f's error, too.
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

// answer is what root tells all others: a value or a failure.
type answer[T any] struct {
	Value   T
	Failure *failure.Failure
}
