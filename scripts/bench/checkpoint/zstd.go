package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
)

// zstdSave is zstd -1 with all cores, from a file that is in the page cache, and an fsync.
func zstdSave(file string) side {
	return side{name: "zstd -1", run: func(ctx context.Context, dir string) (float64, int64, error) {
		to := filepath.Join(dir, "zst")
		_, took, err := zstd(ctx, "-1", "-T0", "-q", "-f", "-o", to, file)
		if err != nil {
			return 0, 0, err
		}
		start := time.Now() // again: the look for processes that were left, after took, is not zstd's
		if err := syncFile(to); err != nil {
			return 0, 0, err
		}
		took += time.Since(start)
		stored, err := sizeOf(to)
		return took.Seconds(), stored, err
	}}
}

// zstdLoad decompresses a file that is in the page cache into nothing.
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

// zstd gives what it said, and how long it took.
func zstd(ctx context.Context, args ...string) (said string, took time.Duration, err error) {
	said, took, err = processes.Run(ctx, exec.Command("zstd", args...))
	if err != nil {
		return "", 0, fmt.Errorf("zstd: %w", err)
	}
	return said, took, nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
