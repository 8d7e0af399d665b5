package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// zstdSave is zstd -1 with all cores, from a file that is in the page cache, and an fsync.
func zstdSave(file string) side {
	return side{name: "zstd -1", run: func(ctx context.Context, dir string) (float64, int64, error) {
		to := filepath.Join(dir, "zst")
		start := time.Now()
		if err := zstd(ctx, "-1", "-T0", "-q", "-f", "-o", to, file); err != nil {
			return 0, 0, err
		}
		if err := syncFile(to); err != nil {
			return 0, 0, err
		}
		took := time.Since(start).Seconds()
		stored, err := sizeOf(to)
		return took, stored, err
	}}
}

// zstdLoad decompresses a file that is in the page cache into nothing.
func zstdLoad(file string) side {
	return side{
		name: "zstd -d",
		prepare: func(ctx context.Context, dir string) error {
			return zstd(ctx, "-1", "-T0", "-q", "-f", "-o", filepath.Join(dir, "zst"), file)
		},
		run: func(ctx context.Context, dir string) (float64, int64, error) {
			start := time.Now()
			err := zstd(ctx, "-d", "-q", "-f", "-o", os.DevNull, filepath.Join(dir, "zst"))
			return time.Since(start).Seconds(), 0, err
		},
	}
}

func zstd(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "zstd", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("zstd: %w: %s", err, out)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
