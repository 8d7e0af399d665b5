package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// An error keeps its rank, its text and its first class, and no other class, when it is recreated elsewhere.
func TestFailureKeepsRankClassAndText(t *testing.T) {
	classes := []error{fs.ErrExist, fs.ErrClosed}
	if Of(1, nil, classes) != nil {
		t.Error("no error is a failure")
	}
	long := strings.Repeat("é", maxText)
	for name, tt := range map[string]struct {
		err     error
		message string
		class   error // nil: no class
	}{
		"no class":  {errors.New("lost"), `{"rank":3,"text":"lost"}`, nil},
		"one class": {fmt.Errorf("open: %w", fs.ErrClosed), `{"rank":3,"text":"open: file already closed","class":2}`, fs.ErrClosed},
		"two classes": {errors.Join(fs.ErrClosed, fs.ErrExist), `{"rank":3,"text":"file already closed\nfile already exists","class":1}`,
			fs.ErrExist},
		"long":    {errors.New(long), `{"rank":3,"text":"` + long[:maxText] + `"}`, nil},
		"cut":     {errors.New("x" + long), `{"rank":3,"text":"x` + long[:maxText-2] + `"}`, nil},
		"no text": {errors.New(strings.Repeat("\x80", 2*maxText)), "", nil},
	} {
		text, err := json.Marshal(Of(3, tt.err, classes))
		if err != nil || tt.message != "" && string(text) != tt.message {
			t.Errorf("%s: %.100s, want %.100s; error %v", name, text, tt.message, err)
		}
		var f Failure
		if err := json.Unmarshal(text, &f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		e := f.Elsewhere(classes)
		if e.Rank() != 3 || e.Text() != f.Text || e.Error() != "rank 3: "+f.Text || len(f.Text) > 3*maxText {
			t.Errorf("%s: %.100v", name, e)
		}
		for _, class := range classes {
			if errors.Is(e, class) != (class == tt.class) {
				t.Errorf("%s: of class %v: %t", name, class, class != tt.class)
			}
		}
	}
	for _, class := range []int{-1, 3} {
		if e := (&Failure{Class: class}).Elsewhere(classes); e.Unwrap() != nil {
			t.Errorf("class %d is %v", class, e.Unwrap())
		}
	}
}
