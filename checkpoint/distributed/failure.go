package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ddpbatch/checkpoint"
)

// sentinels are the errors that callers on every rank tell apart, in the order of their numbers in messages.
var sentinels = []error{
	checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrPermission, checkpoint.ErrStale, checkpoint.ErrCorrupt,
	checkpoint.ErrFormatTooNew, checkpoint.ErrNone, errLocal, context.Canceled, context.DeadlineExceeded,
}

// plain are the sentinels that say enough by themselves to a rank where nothing happened.
var plain = []error{checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrPermission, checkpoint.ErrStale, checkpoint.ErrCorrupt}

// failure is an error as a message has it; nil: none.
type failure struct {
	Rank int    `json:"rank"`
	Text string `json:"text"`
	// Class is one more than the number of the first sentinel that the error is, 0 where it is none.
	Class int `json:"class,omitempty"`
}

// remoteError is a failure on the ranks where it did not happen. errors.Is finds its sentinel.
type remoteError struct {
	rank  int
	text  string
	class error // nil: none
	brief bool  // others tell all of it
}

func (e *remoteError) Error() string {
	if e.brief {
		return fmt.Sprintf("rank %d: %v (see the output of rank 0)", e.rank, e.class)
	}
	return fmt.Sprintf("rank %d: %s", e.rank, e.text)
}

func (e *remoteError) Unwrap() error { return e.class }

// Rank is the one that failed: callers on the others may want to end after it.
func (e *remoteError) Rank() int { return e.rank }

// maxText bounds the text of a failure in a message.
const maxText = 4 << 10

// failureOf makes err a message; a failure that came in one goes on as it is.
func (t *talk) failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Rank: t.group.Rank(), Text: err.Error()}
	if from, ok := errors.AsType[*remoteError](err); ok {
		f.Rank, f.Text = from.rank, from.text
	} else if from, ok := errors.AsType[*ownError](err); ok {
		f.Text = from.err.Error()
	}
	f.Text = f.Text[:min(len(f.Text), maxText)]
	for i, class := range t.classes {
		if errors.Is(err, class) {
			f.Class = i + 1
			break
		}
	}
	return f
}

// error is the failure as this rank's caller gets it; own is this rank's error, and is kept whole where it is the one that counts.
func (t *talk) error(f *failure, own error) error {
	if f == nil {
		return nil
	}
	var class error
	if f.Class > 0 && f.Class <= len(t.classes) {
		class = t.classes[f.Class-1]
	}
	if own == nil || f.Rank != t.group.Rank() {
		return &remoteError{rank: f.Rank, text: f.Text, class: class}
	}
	if e, ok := errors.AsType[*ownError](own); ok {
		return e
	}
	return &ownError{rank: f.Rank, err: own, class: class, classes: t.classes}
}

// brief is error for what rank 0 and the rank where it happened tell whole: the others keep to its class, where that says enough.
func (t *talk) brief(f *failure, own error) error {
	err := t.error(f, own)
	if from, ok := errors.AsType[*remoteError](err); ok && !t.lead() && slices.Contains(plain, from.class) {
		from.brief = true
	}
	return err
}

// ownError is an error of this rank that fails all. It reads as it does on the others, and is of the same class: where it is of several,
// the ranks would go different ways if each looked for another. Of what has no class, all can be found in it.
type ownError struct {
	rank    int
	err     error
	class   error   // nil: none
	classes []error // all there are
}

func (e *ownError) Error() string { return fmt.Sprintf("rank %d: %v", e.rank, e.err) }

// Is finds the class that all ranks find, and none of the others.
func (e *ownError) Is(target error) bool {
	if slices.Contains(e.classes, target) {
		return target == e.class
	}
	return errors.Is(e.err, target)
}

func (e *ownError) As(target any) bool { return errors.As(e.err, target) }
