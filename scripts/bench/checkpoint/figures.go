package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"ddpbatch/checkpoint"
	bench "ddpbatch/scripts/bench/internal/report"
)

// ranks is how many shards the commit is measured with, each a rank's.
const ranks = 64

// measureFigures measures what has a goal and no peer: what checksums add to a write, and compression to what it cannot make smaller;
// memory; how long a checkpoint takes to be committed once its last shard is durable, and the latest of many to be found. With an error come the
// figures from before it.
func measureFigures(ctx context.Context, s *state, below string, launches int, progress io.Writer) (all []bench.Figure, err error) {
	pairs := max(launches, checksumPairs)
	for _, one := range []struct {
		name    string
		measure func() ([]bench.Figure, error)
	}{
		{"checksums", func() ([]bench.Figure, error) { return measureChecksums(ctx, s, below, pairs, progress) }},
		{"incompressible data", func() ([]bench.Figure, error) { return measureIncompressible(ctx, s.bytes(), below, pairs, progress) }},
		{"memory", func() ([]bench.Figure, error) { return measureMemory(ctx, s, below, launches, progress) }},
		{"latest", func() ([]bench.Figure, error) { return measureLatest(ctx, below, launches, progress) }},
		{"commit", func() ([]bench.Figure, error) { return measureCommit(ctx, s, below, launches, progress) }},
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
func measureCommit(ctx context.Context, s *state, below string, launches int, progress io.Writer) ([]bench.Figure, error) {
	commit := bench.Figure{What: fmt.Sprintf("commit of %d shards: last shard durable to manifest durable", ranks), Goal: "<= 100 (ext4)", Unit: "ms"}
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
	return []bench.Figure{commit}, nil
}

// commitTime writes the shards of all ranks, one after the other, and gives the seconds that the commit takes after that.
func commitTime(ctx context.Context, s *state, dir string) (float64, error) {
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
