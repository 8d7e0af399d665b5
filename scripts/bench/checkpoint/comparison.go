package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ddpbatch/scripts/bench/internal/stats"
)

// comparison is a row: ours, which comes first, and its peers.
type comparison struct {
	what  string
	bytes int64 // of the state
	sides []side
}

// comparisons are what is measured, in the order of the table.
func comparisons(s *state, file, dir string, py *torch) []comparison {
	return []comparison{
		{"save, uncompressed", s.bytes(), []side{oursSave(s, "none"), bareWrite(s), py.save("torch.save + fsync", "sync"), py.save("torch.save", "save")}},
		{"save, compressed", s.bytes(), []side{oursSave(s, "auto"), zstdSave(file), py.save("torch.save + fsync", "sync")}},
		{"load, uncompressed", s.bytes(), []side{oursLoad(s, "none"), bareRead(s, file), py.load()}},
		{"load, compressed", s.bytes(), []side{oursLoad(s, "auto"), zstdLoad(file), py.load()}},
		{"stall of an asynchronous save", s.bytes(), []side{oursStall(s), memoryCopy(s)}},
	}
}

// row is what was measured.
type row struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
	Sides []cell `json:"sides"` // ours first
}

type cell struct {
	Name    string         `json:"name"`
	Seconds stats.Samples  `json:"seconds"`
	Stored  int64          `json:"stored"` // bytes on disk; 0: it writes nothing
	Ratio   stats.Number   `json:"ratio"`  // of times, ours / theirs, launch by launch: its median
	Range   stats.Interval `json:"interval"`
}

// measure runs all sides in turn, as often as asked; every turn begins with another one.
func (c comparison) measure(ctx context.Context, launches int, dir string, progress io.Writer) (row, error) {
	r := row{What: c.what, Bytes: c.bytes}
	for _, s := range c.sides {
		r.Sides = append(r.Sides, cell{Name: s.name, Seconds: make(stats.Samples, launches)})
	}
	for turn := range launches {
		fmt.Fprintf(progress, "%s: launch %d of %d\n", c.what, turn+1, launches)
		for i := range c.sides {
			which := (turn + i) % len(c.sides)
			if err := ctx.Err(); err != nil {
				return r, err
			}
			seconds, stored, err := c.sides[which].launch(ctx, dir)
			if err != nil {
				return r, fmt.Errorf("%s, %s: %w", c.what, c.sides[which].name, err)
			}
			r.Sides[which].Seconds[turn], r.Sides[which].Stored = seconds, stored
		}
	}
	for i := range r.Sides[1:] {
		peer := &r.Sides[i+1]
		var ratios stats.Samples
		for turn := range launches {
			ratios = append(ratios, r.Sides[0].Seconds[turn]/peer.Seconds[turn])
		}
		peer.Ratio, peer.Range = stats.Number(ratios.Median()), ratios.Interval()
	}
	return r, nil
}

// launch runs a side once in a fresh folder, after what others have left in the page cache is on disk.
func (s side) launch(ctx context.Context, below string) (seconds float64, stored int64, err error) {
	dir, err := os.MkdirTemp(below, "launch-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	if s.prepare != nil {
		if err := s.prepare(ctx, dir); err != nil {
			return 0, 0, err
		}
	}
	unix.Sync()
	return s.run(ctx, dir)
}
