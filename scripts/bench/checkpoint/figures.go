package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"
)

// experiments measure what has a goal but no peer, with files below a directory: what checksums add to a write, and what compression adds
// to incompressible data; memory; how long it takes to find the latest of many checkpoints, and to commit one after its last shard is
// durable.
func experiments(s *trainingState, below string, launches int) []paired.Experiment {
	pairs := max(launches, checksumPairs)
	return []paired.Experiment{
		checksums(s, below, pairs), incompressible(s.bytes(), below, pairs),
		memory(s, below, launches), latest(below, launches), commit(s, below, launches),
	}
}

// stored is the number of checkpoints among which the latest is looked for.
const stored = 100

// latest measures how long a new process takes to find the newest of many checkpoints.
func latest(below string, launches int) paired.Experiment {
	dir := filepath.Join(below, "latest")
	return paired.Experiment{
		Name: "latest", Times: launches,
		Figures: []paired.Figure{{What: fmt.Sprintf("latest of %d checkpoints found, no data read", stored), Goal: "<= 200", Unit: "ms"}},
		Measure: func(ctx context.Context, turn int) ([]float64, error) {
			if turn == 0 {
				if err := saveMany(ctx, dir); err != nil {
					return nil, err
				}
			}
			took, err := findLatest(ctx, dir)
			return []float64{1000 * took}, err
		},
	}
}

func saveMany(ctx context.Context, dir string) error {
	d, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return err
	}
	for step := range int64(stored) {
		s := &checkpoint.State{Step: step, World: 1,
			Tensors: []checkpoint.Tensor{checkpoint.Float32Tensor("w", []int{64}, make([]float32, 64))}}
		if _, err := d.Save(ctx, s); err != nil {
			return err
		}
	}
	return nil
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

// memory measures by how much this process's resident memory grows at most, according to the kernel, while a checkpoint is saved or loaded.
func memory(s *trainingState, below string, launches int) paired.Experiment {
	return paired.Experiment{
		Name: "memory", Times: launches,
		Figures: []paired.Figure{
			{What: "peak memory beside the state, save", Goal: "<= 64", Unit: "MiB"},
			{What: "peak memory beside the state, asynchronous save", Goal: "<= 100", Unit: "% of the state"},
			{What: "peak memory beside the state that is returned, load", Goal: "<= 64", Unit: "MiB"},
		},
		Measure: func(ctx context.Context, _ int) ([]float64, error) {
			var inStep, async, loaded int64
			err := inFolder(below, func(dir string) (err error) {
				if inStep, err = peakOf(func() error { _, err := save(ctx, s, dir, "auto"); return err }); err != nil {
					return fmt.Errorf("save: %w", err)
				}
				if loaded, err = peakOf(func() error { got, err := load(ctx, dir); runtime.KeepAlive(got); return err }); err != nil {
					return fmt.Errorf("load: %w", err)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			err = inFolder(below, func(dir string) (err error) {
				async, err = peakOf(func() error { return saveBeside(ctx, s, dir) })
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("asynchronous save: %w", err)
			}
			return []float64{float64(inStep) / (1 << 20), 100 * float64(async) / float64(s.bytes()), float64(loaded-s.bytes()) / (1 << 20)},
				nil
		},
	}
}

// saveBeside makes one asynchronous save, from its allocations to its commit.
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

// peakOf returns by how many bytes this process grows at most during work.
func peakOf(work func() error) (int64, error) {
	if err := processes.ForgetPeak(); err != nil {
		return 0, err
	}
	before, err := processes.MemoryOf(os.Getpid())
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := processes.MemoryOf(os.Getpid())
	return after.Highest - before.Resident, err
}

// ranks is the number of shards in the measured commit, one per rank.
const ranks = 64

// commit measures how long the commit of all ranks' shards takes.
func commit(s *trainingState, below string, launches int) paired.Experiment {
	return paired.Experiment{
		Name: "commit", Times: launches,
		Figures: []paired.Figure{
			{What: fmt.Sprintf("commit of %d shards: last shard durable to manifest durable", ranks), Goal: "<= 100 (ext4)", Unit: "ms"},
		},
		Measure: func(ctx context.Context, _ int) (samples []float64, err error) {
			err = inFolder(below, func(dir string) error {
				took, err := commitTime(ctx, s, dir)
				samples = []float64{1000 * took}
				return err
			})
			return samples, err
		},
	}
}

// commitTime writes the shards of all ranks one after the other, and returns the seconds that the commit takes after that.
func commitTime(ctx context.Context, s *trainingState, dir string) (float64, error) {
	d, err := checkpoint.Open(dir, checkpoint.Options{Codec: "none"})
	if err != nil {
		return 0, err
	}
	draft, err := d.NewDraft(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer draft.Abort() // does nothing after the commit
	c := checkpoint.Commit{World: ranks, Tensors: make([]checkpoint.TensorPlan, len(s.tensors))}
	for rank := range ranks {
		var pieces []checkpoint.Piece
		offset := int64(0)
		for i, t := range s.tensors {
			elements := len(t.Data) / 4
			start, end := 4*(rank*elements/ranks), 4*((rank+1)*elements/ranks)
			pieces = append(pieces, checkpoint.Piece{Tensor: t.Name, DType: t.DType, Shape: t.Shape, Start: int64(start),
				Data: t.Data[start:end]})
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

// inFolder calls use with a new directory, and removes that.
func inFolder(below string, use func(dir string) error) error {
	dir, err := os.MkdirTemp(below, "launch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return use(dir)
}
