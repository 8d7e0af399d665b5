package store

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// DialError says why the store was not reached. It matches the context's error and the reason.
type DialError struct {
	Addr   string
	Reason error // of the last try; nil where there was no time for one
	Tries  int
	Err    error // the context's error; nil where the reason was the last word
}

func (e *DialError) Error() string {
	why := "refused"
	if e.Err != nil {
		why = e.Err.Error()
	}
	return fmt.Sprintf("connect to the store: %s after %d tries: %s: %s", why, e.Tries, e.Addr, reason(e.Reason))
}

// Unwrap gives the context's error and the reason.
func (e *DialError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Err, e.Reason}, func(err error) bool { return err == nil })
}

// reason is an error in one line, without the address where net tells it again.
func reason(err error) string {
	var op *net.OpError
	switch {
	case err == nil:
		return "not tried"
	case errors.As(err, &op) && op.Op == "dial":
		err = op.Err
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}
