package failure

import (
	"errors"
	"fmt"

	"ddpbatch/internal/text"
)

// Failure is an error in the form of a message. A nil *Failure means that there is no error.
type Failure struct {
	Rank int    `json:"rank"`
	Text string `json:"text"`
	// Class is one more than the index of the first class that the error belongs to, or 0 if it does not belong to any.
	Class int `json:"class,omitempty"`
}

// maxText bounds the text of a failure, in bytes.
const maxText = 4 << 10

// Of returns rank's error err as a message, or nil if err is nil.
func Of(rank int, err error, classes []error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Rank: rank, Text: text.Cut(err.Error(), maxText)}
	for i, class := range classes {
		if errors.Is(err, class) {
			f.Class = i + 1
			break
		}
	}
	return f
}

// Error is a failure on the ranks where it did not happen. errors.Is finds its class.
type Error struct {
	rank  int
	text  string
	class error // nil: none
}

// Elsewhere returns the failure as an error for a rank where it did not happen. classes must be the same as for Of.
func (f *Failure) Elsewhere(classes []error) *Error {
	e := &Error{rank: f.Rank, text: f.Text}
	if 0 < f.Class && f.Class <= len(classes) {
		e.class = classes[f.Class-1]
	}
	return e
}

// Error returns the rank's number and the text.
func (e *Error) Error() string { return fmt.Sprintf("rank %d: %s", e.rank, e.text) }

// Unwrap returns the error's class, or nil.
func (e *Error) Unwrap() error { return e.class }

// Rank returns the rank that failed.
func (e *Error) Rank() int { return e.rank }

// Text returns the text of that rank's error, or only its beginning if it is long.
func (e *Error) Text() string { return e.text }
