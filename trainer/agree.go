package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// maxMessage bounds what a rank accepts as another's outcome: a few facts or an error.
const maxMessage = 1 << 20

// outcome is what one rank tells all others.
type outcome struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
	Class string          `json:"class,omitempty"` // of the error, a key of classes
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
	var o outcome
	if comm.Rank() == 0 {
		if value, own = f(); own == nil {
			o.Value, own = json.Marshal(value)
		}
		o.fail(own)
	}
	if err := o.broadcast(ctx, comm, 0); err != nil {
		return value, errors.Join(own, err)
	}
	switch {
	case comm.Rank() == 0:
		return value, own
	case o.Error != "":
		return value, &remoteError{rank: 0, text: o.Error, class: classes[o.Class]}
	}
	err := json.Unmarshal(o.Value, &value)
	return value, err
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
	var o outcome
	o.fail(err)
	if e := o.broadcast(ctx, comm, rank); e != nil {
		return errors.Join(err, e)
	}
	if err != nil {
		return err
	}
	return &remoteError{rank: rank, text: o.Error, class: classes[o.Class]}
}

// fail makes o the outcome err, unless that is nil.
func (o *outcome) fail(err error) {
	if err == nil {
		return
	}
	o.Error = err.Error()
	for name, class := range classes {
		if errors.Is(err, class) {
			o.Class = name
		}
	}
}

// broadcast makes o on every rank what it is on root.
func (o *outcome) broadcast(ctx context.Context, comm *mpi.Comm, root int) error {
	var text []byte
	size := make([]int64, 1)
	if comm.Rank() == root {
		var err error
		if text, err = json.Marshal(o); err != nil {
			return err
		}
		size[0] = int64(len(text))
	}
	if err := mpi.Broadcast(ctx, comm, size, root); err != nil {
		return err
	}
	if size[0] < 0 || size[0] > maxMessage {
		return fmt.Errorf("rank %d announces a message of %d bytes, at most %d are accepted", root, size[0], maxMessage)
	}
	if comm.Rank() != root {
		text = make([]byte, size[0])
	}
	if err := mpi.Broadcast(ctx, comm, text, root); err != nil {
		return err
	}
	return json.Unmarshal(text, o)
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
