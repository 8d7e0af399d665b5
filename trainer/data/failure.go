package data

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"syscall"
)

// maxFailure bounds the file that a failure is kept in.
const maxFailure = 64 << 10

// failure is why a source could not be prepared. It is kept beside the place of the prepared data, for the ranks that
// wait: each would find the same fault, one after the other.
type failure struct {
	Source  source `json:"source"`
	Attempt uint64 `json:"attempt"` // counts the failures of this place: who came later than one tries again
	Text    string `json:"text"`
}

func failureOf(at cached) cached { return at.beside(".failed") }

// readFailure is the newest failure to prepare what belongs there, zero where there is none that can be read, or another user may have
// written it.
func readFailure(at cached) failure {
	file, info, err := failureOf(at).open()
	if err != nil {
		return failure{}
	}
	defer file.Close()
	if info.Size() > maxFailure {
		return failure{}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFailure))
	var f failure
	if err != nil || json.Unmarshal(text, &f) != nil {
		return failure{}
	}
	return f
}

// since is the error of a failure with src after attempt number before, nil if f is none.
func (f failure) since(before uint64, src source) error {
	if f.Attempt == before || f.Source != src {
		return nil
	}
	return errors.New(f.Text)
}

// keepFailure keeps err for those who wait, if it is a fault of the data. The caller holds the lock.
func keepFailure(at cached, src source, err error) {
	if !ofData(err) {
		return
	}
	f := failure{Source: src, Attempt: readFailure(at).Attempt + 1, Text: err.Error()}
	// Who does not find the failure comes upon the fault itself.
	_ = replaceFile(failureOf(at), func(w io.Writer) error { return json.NewEncoder(w).Encode(f) })
}

// ofData tells whether another attempt with the same data would give err again: it is neither that of a context nor one
// of the operating system's.
func ofData(err error) bool {
	var number syscall.Errno
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &number)
}
