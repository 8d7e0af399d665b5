package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	bench "ddpbatch/scripts/bench/internal/report"
)

// measureMemory measures how much more of this process is resident at most, by the kernel's account, while a checkpoint is saved or loaded.
func measureMemory(ctx context.Context, s *state, below string, launches int, progress io.Writer) ([]bench.Figure, error) {
	inStep := bench.Figure{What: "peak memory beside the state, save", Goal: "<= 64", Unit: "MiB"}
	async := bench.Figure{What: "peak memory beside the state, asynchronous save", Goal: "<= 100", Unit: "% of the state"}
	load := bench.Figure{What: "peak memory beside the state that is returned, load", Goal: "<= 64", Unit: "MiB"}
	for turn := range launches {
		fmt.Fprintf(progress, "memory: launch %d of %d\n", turn+1, launches)
		err := inFolder(below, func(dir string) error {
			extra, err := peakOf(func() error { _, err := save(ctx, s, dir, "auto"); return err })
			if err != nil {
				return fmt.Errorf("save: %w", err)
			}
			inStep.Samples = append(inStep.Samples, float64(extra)/(1<<20))
			extra, err = peakOf(func() error { return loadOnce(ctx, dir) })
			if err != nil {
				return fmt.Errorf("load: %w", err)
			}
			load.Samples = append(load.Samples, float64(extra-s.bytes())/(1<<20))
			return nil
		})
		if err != nil {
			return nil, err
		}
		err = inFolder(below, func(dir string) error {
			extra, err := peakOf(func() error { return saveBeside(ctx, s, dir) })
			async.Samples = append(async.Samples, 100*float64(extra)/float64(s.bytes()))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("asynchronous save: %w", err)
		}
	}
	return []bench.Figure{inStep, async, load}, nil
}

func loadOnce(ctx context.Context, dir string) error {
	d, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return err
	}
	got, err := d.Load(ctx, 1)
	runtime.KeepAlive(got)
	return err
}

// saveBeside is one asynchronous save, from what it allocates to its commit.
func saveBeside(ctx context.Context, s *state, dir string) error {
	saver, err := newSaver(ctx, s, dir, "auto")
	if err != nil {
		return err
	}
	defer saver.Close()
	if err := saver.Save(ctx, distributed.Meta{Step: 1}); err != nil {
		return err
	}
	_, err = saver.Wait(ctx)
	return err
}

// peakOf is by how many bytes this process is larger, at most, while it works than before.
func peakOf(work func() error) (int64, error) {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak is what there is now: proc(5)
		return 0, fmt.Errorf("reset the peak of resident memory: %w", err)
	}
	before, err := resident("VmRSS")
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	peak, err := resident("VmHWM")
	return peak - before, err
}

// resident is a line of /proc/self/status, in bytes.
func resident(key string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != key {
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		n, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			return 0, fmt.Errorf("/proc/self/status: %q is no size", line)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", key)
}
