// Command checkpoint saves and loads the same state with ddpbatch, PyTorch, zstd and plain file calls on this machine, in turn, and
// compares them. scripts/bench-checkpoint builds and starts it, in the root of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "bench-checkpoint: %v; try -h\n", err)
		os.Exit(2)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench-checkpoint: interrupted; what it had written is gone")
		os.Exit(130)
	}
	fmt.Fprintf(os.Stderr, "bench-checkpoint: %v\n", err)
	os.Exit(1)
}

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

	fmt.Fprintln(stderr, "one thread, in memory: planes and zstd -1")
	codecs, err := measureCodecs(ctx, dir, o.launches)
	if err != nil {
		return err
	}
	s := newState(o.mib << 20)
	file := filepath.Join(dir, "state")
	if err := s.writeTo(file); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	py, err := startTorch(ctx, file, s.elements())
	if err != nil {
		return err
	}
	defer py.stop()

	r := report{header: newHeader(o, dir, py.version), codecs: codecs}
	for _, c := range comparisons(s, file, dir, py) {
		row, err := c.measure(ctx, o.launches, dir, stderr)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, row)
	}
	r.print(stdout)
	if o.json != "" {
		return r.writeJSON(o.json)
	}
	return nil
}
