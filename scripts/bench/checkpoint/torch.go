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
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed torch.py
var torchSource string

// torch is a process that holds the state as PyTorch's tensors.
type torch struct {
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	errors  bytes.Buffer
}

// answer is a line of torch.py.
type answer struct {
	Version string  `json:"version"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
}

// startTorch starts Debian's PyTorch.
func startTorch(ctx context.Context, file string, elements int) (*torch, error) {
	t := &torch{cmd: exec.CommandContext(ctx, "/usr/bin/python3", "-c", torchSource, file, strconv.Itoa(elements))}
	t.cmd.Stderr = &t.errors
	in, err := t.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.in, t.out = in, bufio.NewScanner(out)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start PyTorch (apt-get install python3-torch): %w", err)
	}
	first, err := t.hear()
	if err != nil {
		t.stop()
		return nil, fmt.Errorf("start PyTorch (apt-get install python3-torch): %w", err)
	}
	t.version = first.Version
	return t, nil
}

func (t *torch) hear() (answer, error) {
	var a answer
	if !t.out.Scan() {
		return a, errors.Join(t.out.Err(), fmt.Errorf("it ended: %s", lastLine(t.errors.Bytes())))
	}
	err := json.Unmarshal(t.out.Bytes(), &a)
	return a, err
}

func (t *torch) ask(what, path string) (answer, error) {
	if _, err := fmt.Fprintf(t.in, "%s %s\n", what, path); err != nil {
		return answer{}, err
	}
	return t.hear()
}

func (t *torch) stop() {
	t.in.Close()
	_ = t.cmd.Wait() // what it had to say was heard
}

func (t *torch) save(name, what string) side {
	return side{name: name, run: func(_ context.Context, dir string) (float64, int64, error) {
		a, err := t.ask(what, filepath.Join(dir, "torch"))
		return a.Seconds, a.Bytes, err
	}}
}

func (t *torch) load() side {
	return side{
		name: "torch.load",
		prepare: func(_ context.Context, dir string) error {
			_, err := t.ask("sync", filepath.Join(dir, "torch"))
			return err
		},
		run: func(_ context.Context, dir string) (float64, int64, error) {
			a, err := t.ask("load", filepath.Join(dir, "torch"))
			return a.Seconds, 0, err
		},
	}
}

func lastLine(text []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return lines[len(lines)-1]
}
