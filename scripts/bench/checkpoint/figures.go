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
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/scripts/bench/internal/report"
)

// ranks is how many shards the commit is measured with, each a rank's.
const ranks = 64

// measureFigures measures what has a goal and no peer: what checksums add to a write, and compression to what it cannot make smaller;
// memory; how long a checkpoint takes to be committed once its last shard is durable, and the latest of many to be found. With an error come the
// figures from before it.
func measureFigures(ctx context.Context, s *trainingState, below string, launches int, progress io.Writer) (all []report.Figure, err error) {
	pairs := max(launches, checksumPairs)
	for _, one := range []struct {
		name    string
		measure func() ([]report.Figure, error)
	}{
		{"checksums", func() ([]report.Figure, error) { return measureChecksums(ctx, s, below, pairs, progress) }},
		{"incompressible data", func() ([]report.Figure, error) { return measureIncompressible(ctx, s.bytes(), below, pairs, progress) }},
		{"memory", func() ([]report.Figure, error) { return measureMemory(ctx, s, below, launches, progress) }},
		{"latest", func() ([]report.Figure, error) { return measureLatest(ctx, below, launches, progress) }},
		{"commit", func() ([]report.Figure, error) { return measureCommit(ctx, s, below, launches, progress) }},
	} {
		figures, err := one.measure()
		if err != nil {
			return all, fmt.Errorf("%s: %w", one.name, err)
		}
		all = append(all, figures...)
	}
	return all, nil
}

// measureCommit measures how long the commit of all ranks' shards takes.
func measureCommit(ctx context.Context, s *trainingState, below string, launches int, progress io.Writer) ([]report.Figure, error) {
	commit := report.Figure{What: fmt.Sprintf("commit of %d shards: last shard durable to manifest durable", ranks), Goal: "<= 100 (ext4)", Unit: "ms"}
	for turn := range launches {
		fmt.Fprintf(progress, "commit: launch %d of %d\n", turn+1, launches)
		err := inFolder(below, func(dir string) error {
			took, err := commitTime(ctx, s, dir)
			commit.Samples = append(commit.Samples, 1000*took)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return []report.Figure{commit}, nil
}

// commitTime writes the shards of all ranks, one after the other, and gives the seconds that the commit takes after that.
func commitTime(ctx context.Context, s *trainingState, dir string) (float64, error) {
	d, err := checkpoint.Open(dir, checkpoint.Options{Codec: "none"})
	if err != nil {
		return 0, err
	}
	draft, err := d.NewDraft(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer draft.Abort() // nothing after the commit
	c := checkpoint.Commit{World: ranks, Tensors: make([]checkpoint.TensorPlan, len(s.tensors))}
	for rank := range ranks {
		var pieces []checkpoint.Piece
		offset := int64(0)
		for i, t := range s.tensors {
			elements := len(t.Data) / 4
			start, end := 4*(rank*elements/ranks), 4*((rank+1)*elements/ranks)
			pieces = append(pieces, checkpoint.Piece{Tensor: t.Name, DType: t.DType, Shape: t.Shape, Start: int64(start), Data: t.Data[start:end]})
			p := &c.Tensors[i]
			p.Name, p.DType, p.Shape = t.Name, t.DType, t.Shape
			p.Extents = append(p.Extents, checkpoint.Extent{Shard: rank, Offset: offset, Start: int64(start), Length: int64(end - start)})
			offset += int64(end - start)
		}
		shard, err := draft.WriteShard(ctx, rank, ranks, pieces)
		if err != nil {
			return 0, err
		}
		c.Shards = append(c.Shards, shard)
	}
	start := time.Now()
	saved, err := draft.Commit(ctx, c)
	took := time.Since(start).Seconds()
	if err != nil {
		return 0, err
	}
	return took, saved.Close()
}

// inFolder lends a fresh folder.
func inFolder(below string, use func(dir string) error) error {
	dir, err := os.MkdirTemp(below, "launch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return use(dir)
}

// stored is among how many checkpoints the latest is looked for.
const stored = 100

// measureLatest measures how long a program that has just begun takes to find the newest of many checkpoints.
func measureLatest(ctx context.Context, below string, launches int, progress io.Writer) ([]report.Figure, error) {
	fmt.Fprintf(progress, "latest of %d\n", stored)
	f := report.Figure{What: fmt.Sprintf("latest of %d checkpoints found, no data read", stored), Goal: "<= 200", Unit: "ms"}
	err := inFolder(below, func(dir string) error {
		d, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			return err
		}
		for step := range int64(stored) {
			s := &checkpoint.State{Step: step, World: 1, Tensors: []checkpoint.Tensor{checkpoint.Float32Tensor("w", []int{64}, make([]float32, 64))}}
			if _, err := d.Save(ctx, s); err != nil {
				return err
			}
		}
		for range launches {
			took, err := findLatest(ctx, dir)
			if err != nil {
				return err
			}
			f.Samples = append(f.Samples, 1000*took)
		}
		return nil
	})
	return []report.Figure{f}, err
}

func findLatest(ctx context.Context, dir string) (seconds float64, err error) {
	start := time.Now()
	d, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return 0, err
	}
	c, err := d.FindLatest(ctx)
	if err != nil {
		return 0, err
	}
	seconds = time.Since(start).Seconds()
	if c.Step() != stored-1 {
		return 0, fmt.Errorf("the latest is step %d of %d", c.Step(), stored)
	}
	return seconds, c.Close()
}

// measureMemory measures how much more of this process is resident at most, by the kernel's account, while a checkpoint is saved or loaded.
func measureMemory(ctx context.Context, s *trainingState, below string, launches int, progress io.Writer) ([]report.Figure, error) {
	inStep := report.Figure{What: "peak memory beside the state, save", Goal: "<= 64", Unit: "MiB"}
	async := report.Figure{What: "peak memory beside the state, asynchronous save", Goal: "<= 100", Unit: "% of the state"}
	load := report.Figure{What: "peak memory beside the state that is returned, load", Goal: "<= 64", Unit: "MiB"}
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
	return []report.Figure{inStep, async, load}, nil
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
func saveBeside(ctx context.Context, s *trainingState, dir string) error {
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
