// Command checkpoint saves and loads the same state with ddpbatch, PyTorch, zstd and plain file calls on this machine, in turn, and
// compares them. scripts/bench-checkpoint builds and starts it, in the root of the repository.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ddpbatch/scripts/bench/internal/command"
)

func main() { command.Main("bench-checkpoint", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "bench-checkpoint-")
	if err != nil {
		return fmt.Errorf("make a folder for the files: %w", err)
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.Abs(dir); err != nil { // programs have folders of their own
		return fmt.Errorf("find the folder for the files: %w", err)
	}
	var p prepared
	if !o.figures {
		if p, err = prepare(ctx, dir); err != nil {
			return err
		}
	}
	s := newState(o.mib << 20)
	r := report{header: newHeader(o, dir, p.torch), file: o.json}
	r.header.print(stdout)
	if !o.figures {
		if err := r.compare(ctx, s, o, p, dir, stdout, stderr); err != nil {
			return err
		}
	}
	r.figures, err = measureFigures(ctx, s, dir, o.launches, stderr)
	r.printFigures(stdout)
	return errors.Join(err, r.save())
}

// compare measures the codec, and whole checkpoints beside their peers. It prints and saves each table as it comes: the rest takes minutes.
func (r *report) compare(ctx context.Context, s *state, o options, p prepared, dir string, stdout, progress io.Writer) (err error) {
	fmt.Fprintln(progress, "one thread, in memory: planes and zstd -1")
	if r.codecs, err = measureCodecs(ctx, p.codec, dir, o.launches); err != nil {
		return err
	}
	r.printCodecs(stdout)
	if err := r.save(); err != nil {
		return err
	}
	file := filepath.Join(dir, "state")
	if err := s.writeTo(file); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	py, err := startTorch(ctx, p.python, file, s.elements())
	if err != nil {
		return err
	}
	defer py.stop()
	for _, c := range comparisons(s, file, dir, py) {
		row, err := c.measure(ctx, o.launches, dir, progress)
		if err != nil {
			return err
		}
		row.print(stdout)
		r.rows = append(r.rows, row)
		if err := r.save(); err != nil {
			return err
		}
	}
	return nil
}
