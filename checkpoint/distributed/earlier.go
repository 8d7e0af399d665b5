package distributed

import (
	"errors"
	"fmt"
)

// EarlierError is the error of a save before the one that was asked for: it has failed in the background, and nobody had heard of it. Save,
// which returns it, has saved nothing of its own step; called again, it does, unless Err says that no save can succeed any more. It is
// returned by the same call on all ranks.
type EarlierError struct {
	Step int64 // that was not saved
	Err  error
}

func (e *EarlierError) Error() string { return fmt.Sprintf("the save of step %d: %v", e.Step, e.Err) }
func (e *EarlierError) Unwrap() error { return e.Err }

// inSave is an error that Save returns at a step.
func inSave(step int64, err error) error {
	if _, ok := errors.AsType[*EarlierError](err); ok {
		return fmt.Errorf("before step %d: %w", step, err)
	}
	return fmt.Errorf("save step %d: %w", step, err)
}
