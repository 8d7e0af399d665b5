package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

//go:embed torch.py
var torchSource string

// torch is a process that holds the state as PyTorch's tensors.
type torch struct {
	group   *processes.Group
	in      io.WriteCloser
	out     *os.File
	answers *bufio.Scanner // of out
	errors  bytes.Buffer   // not to be read before it has ended
}

// answer is a line of torch.py; the first, once it is ready, is empty.
type answer struct {
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
}

// startTorch starts PyTorch, which the caller stops. It ends with ctx, too.
func startTorch(ctx context.Context, python, file string, elements int) (*torch, error) {
	t := &torch{}
	cmd := exec.Command(python, "-c", torchSource, file, strconv.Itoa(elements))
	cmd.Stderr = &t.errors
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = theirs
	group, err := processes.Start(cmd)
	theirs.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("start PyTorch: %w", err)
	}
	context.AfterFunc(ctx, group.Kill) // which ends what hear waits for
	t.group, t.in, t.out, t.answers = group, in, out, bufio.NewScanner(out)
	if _, err := t.hear(ctx); err != nil {
		t.stop()
		return nil, fmt.Errorf("start PyTorch: %w", err)
	}
	return t, nil
}

func (t *torch) hear(ctx context.Context) (a answer, err error) {
	if !t.answers.Scan() {
		return a, t.ended(ctx, t.answers.Err())
	}
	err = json.Unmarshal(t.answers.Bytes(), &a)
	return a, err
}

func (t *torch) ask(ctx context.Context, what, path string) (answer, error) {
	if _, err := fmt.Fprintf(t.in, "%s %s\n", what, path); err != nil {
		return answer{}, t.ended(ctx, err)
	}
	return t.hear(ctx)
}

// ended tells why it does not answer any more.
func (t *torch) ended(ctx context.Context, err error) error {
	t.group.Kill()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, fmt.Errorf("it ended: %s", tools.LastLine(t.errors.String())))
}

func (t *torch) stop() {
	t.group.Kill()
	t.in.Close()
	t.out.Close()
}

func (t *torch) save(name, what string) side {
	return side{name: name, run: func(ctx context.Context, dir string) (float64, int64, error) {
		a, err := t.ask(ctx, what, filepath.Join(dir, "torch"))
		return a.Seconds, a.Bytes, err
	}}
}

func (t *torch) load() side {
	return side{
		name: "torch.load",
		prepare: func(ctx context.Context, dir string) error {
			_, err := t.ask(ctx, "sync", filepath.Join(dir, "torch"))
			return err
		},
		run: func(ctx context.Context, dir string) (float64, int64, error) {
			a, err := t.ask(ctx, "load", filepath.Join(dir, "torch"))
			return a.Seconds, 0, err
		},
	}
}
