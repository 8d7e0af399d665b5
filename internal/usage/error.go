package usage

import "fmt"

// Error is a use that cannot be understood; Hint says what to type.
type Error struct{ Message, Hint string }

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// Errorf is an Error without a hint.
func Errorf(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...)}
}
