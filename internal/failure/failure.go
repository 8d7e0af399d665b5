package failure

import (
	"errors"
	"fmt"

	"ddpbatch/internal/text"
)

// Failure is an error as a message has it; nil: none.
type Failure struct {
	Rank int    `json:"rank"`
	Text string `json:"text"`
	// Class is one more than the number of the first class that the error is of, 0 where it is of none.
	Class int `json:"class,omitempty"`
}

// maxText bounds the text of a failure, in bytes.
const maxText = 4 << 10

// Of is rank's error err as a message.
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

// Elsewhere is the failure on a rank where it did not happen. classes are those of Of.
func (f *Failure) Elsewhere(classes []error) *Error {
	e := &Error{rank: f.Rank, text: f.Text}
	if 0 < f.Class && f.Class <= len(classes) {
		e.class = classes[f.Class-1]
	}
	return e
}

// Error is the text, after the rank's number.
func (e *Error) Error() string { return fmt.Sprintf("rank %d: %s", e.rank, e.text) }

// Unwrap returns the error's class, or nil.
func (e *Error) Unwrap() error { return e.class }

// Rank is the rank that failed.
func (e *Error) Rank() int { return e.rank }

// Text is what that rank's error says. Of a long one it is the beginning.
func (e *Error) Text() string { return e.text }
