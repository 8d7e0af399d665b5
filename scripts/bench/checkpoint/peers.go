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
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// block is the number of bytes in one write or read, as with dd bs=1M.
const block = 1 << 20

// bareWrite writes the bytes and syncs them, and does nothing else that a checkpoint needs.
func bareWrite(s *trainingState) side {
	return side{name: "write + fsync", run: func(_ context.Context, dir string) (float64, int64, error) {
		start := time.Now()
		_, err := writeState(s, filepath.Join(dir, "bare"), false)
		return time.Since(start).Seconds(), s.bytes(), err
	}}
}

// bareRead reads the bytes from the page cache into new memory.
func bareRead(s *trainingState, file string) side {
	return side{name: "read", run: func(context.Context, string) (float64, int64, error) {
		start := time.Now()
		f, err := os.Open(file)
		if err != nil {
			return 0, 0, err
		}
		defer f.Close()
		for _, t := range s.tensors {
			data := make([]byte, len(t.Data))
			for at := 0; at < len(data); at += block {
				if _, err := io.ReadFull(f, data[at:min(at+block, len(data))]); err != nil {
					return 0, 0, err
				}
			}
		}
		return time.Since(start).Seconds(), 0, nil
	}}
}

// zstdSave runs zstd -1 with all cores on a file in the page cache, and syncs the result.
func zstdSave(file string) side {
	return side{name: "zstd -1", run: func(ctx context.Context, dir string) (float64, int64, error) {
		to := filepath.Join(dir, "zst")
		_, took, err := zstd(ctx, "-1", "-T0", "-q", "-f", "-o", to, file)
		if err != nil {
			return 0, 0, err
		}
		start := time.Now() // again: the check for remaining processes, after took, does not count
		stored, err := syncFile(to)
		return (took + time.Since(start)).Seconds(), stored, err
	}}
}

// zstdLoad decompresses a file in the page cache, and discards the result.
func zstdLoad(file string) side {
	return side{
		name: "zstd -d",
		prepare: func(ctx context.Context, dir string) error {
			_, _, err := zstd(ctx, "-1", "-T0", "-q", "-f", "-o", filepath.Join(dir, "zst"), file)
			return err
		},
		run: func(ctx context.Context, dir string) (float64, int64, error) {
			_, took, err := zstd(ctx, "-d", "-q", "-f", "-o", os.DevNull, filepath.Join(dir, "zst"))
			return took.Seconds(), 0, err
		},
	}
}

// zstd returns the output of zstd, and how long it took.
func zstd(ctx context.Context, args ...string) (said string, took time.Duration, err error) {
	said, took, err = processes.Run(ctx, exec.Command("zstd", args...))
	if err != nil {
		return "", 0, fmt.Errorf("zstd: %w", err)
	}
	return said, took, nil
}

// syncFile syncs a file and returns its size.
func syncFile(path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Sync()
}

//go:embed torch.py
var torchSource string

// torch is a process that holds the state as PyTorch tensors.
type torch struct {
	group   *processes.Group
	in      io.WriteCloser
	out     *os.File
	answers *bufio.Scanner // of out
	errors  bytes.Buffer   // only read after the process has ended
}

// answer is a line of torch.py. The first, which says that it is ready, is empty.
type answer struct {
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
}

// startTorch starts PyTorch. The caller stops it. It also ends with ctx.
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
	context.AfterFunc(ctx, group.Kill) // ends what receive waits for
	t.group, t.in, t.out, t.answers = group, in, out, bufio.NewScanner(out)
	if _, err := t.receive(ctx); err != nil {
		t.stop()
		return nil, fmt.Errorf("start PyTorch: %w", err)
	}
	return t, nil
}

func (t *torch) receive(ctx context.Context) (a answer, err error) {
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
	return t.receive(ctx)
}

// ended returns why the process no longer answers.
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

// memoryCopy copies the state into memory that has been touched before.
func memoryCopy(s *trainingState) side {
	var to [][]byte
	return side{
		name: "memcpy",
		prepare: func(context.Context, string) error {
			if to == nil {
				for _, t := range s.tensors {
					to = append(to, append([]byte{}, t.Data...))
				}
			}
			return nil
		},
		run: func(context.Context, string) (float64, int64, error) {
			start := time.Now()
			for i, t := range s.tensors {
				copy(to[i], t.Data)
			}
			return time.Since(start).Seconds(), 0, nil
		},
	}
}
