package store

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// DialError says why no store was reached by the end of the context. It
// matches the context's error and the last reason of each address.
type DialError struct {
	Addrs   []string
	Reasons []error // the last one of each address; nil where there was no time to try it
	Tries   int
	Err     error // the context's error
}

func (e *DialError) Error() string {
	text := make([]string, len(e.Addrs))
	for i, addr := range e.Addrs {
		text[i] = addr + ": " + reason(e.Reasons[i])
	}
	return fmt.Sprintf("connect to the store: %v after %d tries: %s", e.Err, e.Tries, strings.Join(text, "; "))
}

// Unwrap gives the context's error and the reasons.
func (e *DialError) Unwrap() []error {
	errs := []error{e.Err}
	for _, err := range e.Reasons {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
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
