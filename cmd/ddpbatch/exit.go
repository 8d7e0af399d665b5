package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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

// exitCode is the only place where an error becomes an exit code.
func exitCode(err error) int {
	var coded *exit.Error
	var stopped launch.SignalError
	switch {
	case err == nil:
		return exit.Done
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, new(*usage.Error)), errors.As(err, new(jobfile.Faults)), errors.Is(err, vfs.ErrExposed):
		return exit.Usage
	case errors.Is(err, checkpoint.ErrFenced), errors.Is(err, rundir.ErrSuperseded):
		return exit.Never
	case errors.Is(err, trainer.ErrMismatch):
		return exit.Mismatch
	case errors.Is(err, checkpoint.ErrNone):
		return exit.NoCheckpoint
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrFormatTooNew):
		return exit.Corrupt
	case errors.Is(err, slurm.ErrRefused), errors.Is(err, slurm.ErrUnreachable), errors.Is(err, slurm.ErrNoSlurm):
		return exit.Refused
	case errors.As(err, &stopped):
		return 128 + int(stopped.Sig)
	case errors.Is(err, context.DeadlineExceeded):
		return exit.Timeout
	case errors.Is(err, context.Canceled):
		return exit.Interrupted
	}
	return exit.Failed
}

// report prints err for the user, and returns its exit code.
func report(e *env, err error) int {
	code := exitCode(err)
	var coded *exit.Error
	if err == nil || errors.As(err, &coded) && coded.Err == nil {
		return code
	}
	if faults, ok := errors.AsType[jobfile.Faults](err); ok {
		for _, f := range faults {
			fmt.Fprintln(e.Err, text.CleanLines(f.String()))
		}
		return code
	}
	fmt.Fprintf(e.Err, "ddpbatch: %s\n", text.CleanLines(err.Error())) // it may quote a file of another user
	return code
}

// printJSON prints v as one indented JSON value. It escapes characters that package json leaves unchanged but that affect terminals: DEL,
// the 8-bit control characters, and those that change the direction of text. Names may come from another user's file.
func printJSON(e *env, v any) error {
	var encoded bytes.Buffer
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range encoded.String() { // they can only be within strings
		if r > '~' && text.Unsafe(r) {
			fmt.Fprintf(&safe, `\u%04x`, r)
		} else {
			safe.WriteRune(r)
		}
	}
	_, err := io.WriteString(e.Out, safe.String())
	return err
}
