package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// The exit codes are those of docs/cli/exit-codes.md, which users rely on in scripts.
func TestExitCodesAreTheDocumentedOnes(t *testing.T) {
	interrupted := launch.SignalError{Sig: syscall.SIGINT}
	for name, row := range map[string]struct {
		err  error
		want int
	}{
		"nothing":            {nil, 0},
		"something":          {errors.New("x"), 1},
		"usage":              {usage.Errorf("x"), 2},
		"job file":           {jobfile.Faults{{Message: "x"}}, 2},
		"another's run":      {rundir.ErrExposed, 2},
		"another's folder":   {vfs.ErrExposed, 2},
		"no checkpoint":      {checkpoint.ErrNone, 10},
		"corrupt":            {checkpoint.ErrCorrupt, 11},
		"newer format":       {checkpoint.ErrFormatTooNew, 11},
		"another job's":      {trainer.ErrMismatch, 12},
		"refused":            {&slurm.RefusedError{Command: "sbatch"}, 20},
		"unreachable":        {&slurm.UnreachableError{Command: "sbatch"}, 20},
		"no Slurm":           {slurm.ErrNoSlurm, 20},
		"superseded":         {rundir.ErrSuperseded, 93},
		"fenced":             {checkpoint.ErrFenced, 93},
		"timed out":          {context.DeadlineExceeded, 124},
		"interrupted":        {interrupted, 130},
		"terminated":         {launch.SignalError{Sig: syscall.SIGTERM}, 143},
		"cancelled":          {context.Canceled, 130},
		"a worker's code":    {&exit.Error{Code: 7}, 7},
		"its code wins":      {errors.Join(&exit.Error{Code: 75}, usage.Errorf("x")), 75},
		"signal, wrapped":    {fmt.Errorf("%w: %w", launch.SignalError{Sig: syscall.SIGTERM}, context.Canceled), 143},
		"fenced by a newer":  {fmt.Errorf("save: %w: %w", checkpoint.ErrFenced, checkpoint.ErrCorrupt), 93},
		"said with its code": {&exit.Error{Code: 9, Err: usage.Errorf("x")}, 9},
	} {
		if got := exitCode(row.err); got != row.want {
			t.Errorf("%s: %d, want %d", name, got, row.want)
		}
		if row.err == nil {
			continue
		}
		if got := exitCode(fmt.Errorf("while doing this: %w", row.err)); got != row.want {
			t.Errorf("%s, wrapped: %d, want %d", name, got, row.want)
		}
	}
}

func TestReport(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		text string
	}{
		"nothing":            {nil, ""},
		"said":               {&exit.Error{Code: 3}, ""},
		"to be said":         {&exit.Error{Code: 3, Err: errors.New("it broke")}, "ddpbatch: it broke\n"},
		"usage":              {&usage.Error{Message: "no", Hint: "try this"}, "ddpbatch: no; try this\n"},
		"a stranger's":       {errors.New("a \x1b]0;x\a\u009b1m\u202e\rb\n\tc"), "ddpbatch: a  ]0;x  1m  b\n\tc\n"},
		"a stranger's fault": {jobfile.Faults{{File: "j", Message: "a\x1b[2J"}}, "j: a [2J\n"},
		"faults": {jobfile.Faults{{File: "j", Line: 1, Column: 2, Message: "a"}, {File: "--set x", Message: "b"}},
			"j:1:2: a\n--set x: b\n"},
	} {
		var out, errs bytes.Buffer
		code := report(&env{Out: &out, Err: &errs}, row.err)
		if errs.String() != row.text || out.Len() > 0 || code != exitCode(row.err) {
			t.Errorf("%s: code %d, %q, and %q on standard output; want %q", name, code, errs.String(), out.String(), row.text)
		}
	}
}

func TestPrintJSONEscapesNoHTML(t *testing.T) {
	var out bytes.Buffer
	if err := printJSON(&env{Out: &out}, map[string]string{"a": "<x> & é"}); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"a\": \"<x> & é\"\n}\n"; out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	if err := printJSON(&env{Out: failingWriter{}}, 1); !errors.Is(err, errFull) {
		t.Errorf("a full disk: %v", err)
	}
}

var errFull = errors.New("disk full")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

// JSON escapes every character that could control a terminal, and loses nothing: 8-bit control characters begin sequences as ESC [ does.
func TestJSONControlsNoTerminal(t *testing.T) {
	name := "weight\u009b31m\u007f\u0085\x1b[2J é \u2028 \u202e \u2066"
	var out bytes.Buffer
	if err := printJSON(&env{Out: &out}, map[string]string{"name": name}); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if r != '\n' && text.Unsafe(r) {
			t.Errorf("%q is in %q", r, out.String())
		}
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["name"] != name {
		t.Errorf("read back: %q, %v", got["name"], err)
	}
}

// Text that a note or a warning quotes, such as the name of a file, does not control the terminal.
func TestNotesAndWarningsControlNoTerminal(t *testing.T) {
	var errs bytes.Buffer
	e := &env{Err: &errs}
	note(e, "%s has changed", "a\x1b[2Jb")
	warn(e, []jobfile.Fault{{File: "c\x1b[2Jd/job.toml", Message: "e\x07f"}})
	if got := errs.String(); got != "ddpbatch: a [2Jb has changed\nc [2Jd/job.toml: e f (warning)\n" {
		t.Errorf("%q", got)
	}
}
