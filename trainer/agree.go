package trainer

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// outcome is what one rank has to show to all others: a value, or an error.
type outcome[T any] struct {
	Value T
	Error string // empty: none
	Class string // of the error, a key of classes
}

// classes are the errors that callers on every rank tell apart, to choose an exit code.
var classes = map[string]error{
	"mismatch": ErrMismatch,
	"diverged": ErrDiverged,
	"fenced":   checkpoint.ErrFenced,
	"no space": checkpoint.ErrNoSpace,
	"corrupt":  checkpoint.ErrCorrupt,
	"too new":  checkpoint.ErrFormatTooNew,
	"stopped":  errStopped,
}

// remoteError is another rank's error. errors.Is finds ErrElsewhere and its class.
type remoteError struct {
	rank  int
	text  string
	class error // nil: none
}

func (e *remoteError) Error() string { return fmt.Sprintf("rank %d: %s", e.rank, e.text) }

func (e *remoteError) Is(target error) bool { return target == ErrElsewhere }
func (e *remoteError) Unwrap() error        { return e.class }

// onRank0 calls f on rank 0 alone and returns its outcome on every rank. Rank 0 gets f's own error.
func onRank0[T any](ctx context.Context, comm *mpi.Comm, f func() (T, error)) (T, error) {
	var value T
	var own error
	if comm.Rank() == 0 {
		value, own = f()
	}
	o, err := mpi.BroadcastObject(ctx, comm, outcomeOf(value, own), 0)
	switch {
	case err != nil:
		return value, errors.Join(own, err)
	case comm.Rank() == 0:
		return value, own
	}
	return o.Value, o.error(0)
}

// together returns nil if err is nil on all ranks. Otherwise every rank gets an
// error: its own, or that of the first rank that has one. So no rank goes on alone
// and waits in a collective for one that has given up.
func together(ctx context.Context, comm *mpi.Comm, err error) error {
	first := []int32{int32(comm.Size())}
	if err != nil {
		first[0] = int32(comm.Rank())
	}
	if e := mpi.AllReduce(ctx, comm, first, mpi.Min); e != nil {
		return errors.Join(err, e)
	}
	rank := int(first[0])
	if rank == comm.Size() {
		return nil
	}
	o, e := mpi.BroadcastObject(ctx, comm, outcomeOf(struct{}{}, err), rank)
	switch {
	case e != nil:
		return errors.Join(err, e)
	case err != nil:
		return err
	}
	return o.error(rank)
}

func outcomeOf[T any](value T, err error) outcome[T] {
	o := outcome[T]{Value: value}
	if err == nil {
		return o
	}
	o.Error = err.Error()
	for name, class := range classes {
		if errors.Is(err, class) {
			o.Class = name
		}
	}
	return o
}

// error is that of an outcome of another rank.
func (o outcome[T]) error(rank int) error {
	if o.Error == "" {
		return nil
	}
	return &remoteError{rank: rank, text: o.Error, class: classes[o.Class]}
}

// elsewhere marks what a Saver says went wrong on another rank.
func (t *trainer) elsewhere(err error) error {
	if from, ok := errors.AsType[interface {
		error
		Rank() int
	}](err); ok && from.Rank() != t.env.Comm.Rank() {
		return fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return err
}
