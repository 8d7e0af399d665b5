package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"
)

// block is how much a call writes or reads, as with dd bs=1M.
const block = 1 << 20

// bareWrite writes the bytes and syncs them, and does nothing else that a checkpoint needs.
func bareWrite(s *state) side {
	return side{name: "write + fsync", run: func(_ context.Context, dir string) (float64, int64, error) {
		start := time.Now()
		f, err := os.Create(filepath.Join(dir, "bare"))
		if err != nil {
			return 0, 0, err
		}
		defer f.Close()
		for _, t := range s.tensors {
			for data := t.Data; len(data) > 0; {
				n, err := f.Write(data[:min(block, len(data))])
				if err != nil {
					return 0, 0, err
				}
				data = data[n:]
			}
		}
		if err := f.Sync(); err != nil {
			return 0, 0, err
		}
		return time.Since(start).Seconds(), s.bytes(), f.Close()
	}}
}

// bareRead reads the bytes, from the page cache, into fresh memory.
func bareRead(s *state, file string) side {
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
