package usage

import "fmt"

// Error describes an invalid use. Hint says what to do instead.
type Error struct{ Message, Hint string }

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// Errorf returns an Error without a hint.
func Errorf(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...)}
}
