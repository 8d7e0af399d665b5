package blame

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

func TestReadErrorFile(t *testing.T) {
	at := time.Unix(1795308385, 0)
	for name, tc := range map[string]struct {
		text string
		want TorchError
	}{
		"as @record writes it": {
			`{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback\n  x\n", "timestamp": "1795308385"}}}`,
			TorchError{Message: "ValueError: boom", Stack: "Traceback\n  x\n", Time: at},
		},
		"with an agent's code": {
			`{"message": {"message": "E: x", "extraInfo": {"py_callstack": "", "timestamp": "1795308385"}, "errorCode": -9}}`,
			TorchError{Message: "E: x", Time: at, Code: -9},
		},
		"a plain text":                    {`{"message": "boom", "timestamp": 1795308385}`, TorchError{Message: "boom", Time: at}},
		"a plain text, nothing else":      {`{"message": "boom"}`, TorchError{Message: "boom"}},
		"a time with a fraction":          {`{"message": "boom", "timestamp": "1795308385.25"}`, TorchError{Message: "boom", Time: at.Add(250 * time.Millisecond)}},
		"a message that is no text":       {`{"message": {"message": [1, 2]}}`, TorchError{Message: "[1, 2]"}},
		"other things beside":             {`{"x": [{}], "message": {"message": "m", "extraInfo": "none", "errorCode": "x"}}`, TorchError{Message: "m"}},
		"times that there cannot be":      {`{"message": "m", "timestamp": "NaN"}`, TorchError{Message: "m"}},
		"a time before all":               {`{"message": "m", "timestamp": -5}`, TorchError{Message: "m"}},
		"a time after all":                {`{"message": "m", "timestamp": 1e300}`, TorchError{Message: "m"}},
		"a code that is too large":        {`{"message": {"message": "m", "errorCode": 99999999999999999999}}`, TorchError{Message: "m"}},
		"an empty message":                {`{"message": ""}`, TorchError{}},
		"half a surrogate, and NUL bytes": {`{"message": "a\ud800b\u0000"}`, TorchError{Message: "a\ufffdb\x00"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "error.json")
			must(t, os.WriteFile(path, []byte(tc.text), 0o600))
			got, err := ReadErrorFile(path)
			must(t, err)
			if got.Message != tc.want.Message || got.Stack != tc.want.Stack || !got.Time.Equal(tc.want.Time) || got.Code != tc.want.Code {
				t.Errorf("got %+v, want %+v", *got, tc.want)
			}
		})
	}
}

func TestErrorFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"{", "null", "[]", "7", `"x"`, "{}", `{"message": 7}`, `{"message": null}`, `{"message": []}`,
		`{"message": {"message": "cut`, "\x00\xff", strings.Repeat("[", 100000)} {
		path := filepath.Join(dir, "error.json")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if e, err := ReadErrorFile(path); err == nil || !strings.Contains(err.Error(), path) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%.20q: %+v, %v", text, e, err)
		}
	}
	if _, err := ReadErrorFile(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	empty := filepath.Join(dir, "empty") // as an agent makes it for its worker
	must(t, os.WriteFile(empty, nil, 0o600))
	if _, err := ReadErrorFile(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := ReadErrorFile(dir); !errors.Is(err, vfs.ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := ReadErrorFile(pipe); !errors.Is(err, vfs.ErrNotRegular) { // and it does not wait for a writer
		t.Errorf("a pipe: %v", err)
	}
	long := filepath.Join(dir, "long")
	must(t, os.WriteFile(long, []byte(`{"message": "`+strings.Repeat("x", 2<<20)+`"}`), 0o600))
	if _, err := ReadErrorFile(long); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("two MiB: %v", err)
	}
}

// An error file that a file server holds a lease on, for a client of it, is read once that is given back.
func TestErrorFileUnderLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "error.json")
	must(t, os.WriteFile(path, []byte(`{"message": "boom"}`), 0o600))
	testkit.Lease(t, path)
	if got, err := ReadErrorFile(path); err != nil || got.Message != "boom" {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func FuzzErrorFile(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback (most recent call last):\nE", "timestamp": "1"}, "errorCode": 1}}`))
	f.Add([]byte(`{"message": "boom", "timestamp": 2e9}`))
	f.Add([]byte(`{"message": {"message": {}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parseErrorFile(text)
		if err != nil {
			return
		}
		if len(e.Message) > maxMessage || len(e.Stack) > maxStack || !utf8.ValidString(e.Message+e.Stack) {
			t.Errorf("%d and %d bytes", len(e.Message), len(e.Stack))
		}
		// it travels between agents, and into a report
		d := Death{Exit: 1, ErrorFile: e}
		sent, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back Death
		if err := json.Unmarshal(sent, &back); err != nil || !back.ErrorFile.Time.Equal(e.Time) || back.ErrorFile.Message != e.Message {
			t.Errorf("%+v came back as %+v, %v", e, back.ErrorFile, err)
		}
		checkReport(t, Report([]Death{d}, Choose([]Death{d}), "over"))
	})
}
