package launch

import (
	"fmt"
	"time"
)

// answerLimit is how long a file system may take to answer. One that hangs may take hours, and no signal ends a call to it.
const answerLimit = time.Minute

// answered returns what do returns, or, where that takes longer than answerLimit, an error that says so; do goes on by itself then, and must not
// change anything that the caller reads.
func answered[T any](what string, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		value, err := do()
		got <- answer{value, err}
	}()
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.value, a.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("%s: the file system has not answered for %v", what, answerLimit)
	}
}

// finished is answered for what has no result.
func finished(what string, do func() error) error {
	_, err := answered(what, func() (struct{}, error) { return struct{}{}, do() })
	return err
}
