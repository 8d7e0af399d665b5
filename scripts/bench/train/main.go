// Command train trains the same models with ddpbatch and with PyTorch on this machine, in turn, and compares
// them. scripts/bench-train builds and starts it, in the root of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"ddpbatch/scripts/bench/internal/stats"
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
		fmt.Fprintf(os.Stderr, "bench-train: %v; try -h\n", err)
		os.Exit(2)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench-train: interrupted; what it had started is gone")
		os.Exit(130)
	}
	fmt.Fprintf(os.Stderr, "bench-train: %v\n", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-train-")
	if err != nil {
		return fmt.Errorf("make a folder for the data: %w", err)
	}
	defer os.RemoveAll(dir)
	sides, err := prepare(ctx, dir, o)
	if err != nil {
		return err
	}
	from, err := writeData(dir, o.data)
	if err != nil {
		return fmt.Errorf("write the data: %w", err)
	}
	fmt.Fprintln(stderr, "matrix products of ddpbatch")
	p, err := measureProducts(ctx, dir)
	if err != nil {
		return err
	}
	h := newHeader(o, sides, from, p.library)
	h.print(stdout)

	var rows []row
	for _, ranks := range o.ranks {
		first := len(rows)
		for _, m := range modelsOf(o.models) {
			r, err := measure(ctx, o, setting{m, ranks}, sides, dir, stderr)
			if err != nil {
				return err
			}
			if share, ok := p.outside[m.name]; ok && ranks == 1 {
				r.Outside = stats.Number(share)
			}
			rows = append(rows, r)
			if o.json != "" { // all so far
				if err := writeJSON(o.json, h, rows); err != nil {
					return err
				}
			}
		}
		printTable(stdout, ranks, rows[first:])
	}
	fmt.Fprintf(stdout, "\nMatrix products of PyTorch: %s.\n", rows[0].BLAS)
	return nil
}

// prepare builds what is to be launched, in dir; ours comes first.
func prepare(ctx context.Context, dir string, o options) (sides [2]side, err error) {
	program := o.program
	if program == "" {
		program = filepath.Join(dir, "ddpbatch")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/ddpbatch").CombinedOutput(); err != nil {
			return sides, fmt.Errorf("build ddpbatch: %w\n%s", err, out)
		}
	}
	version, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return sides, fmt.Errorf("ddpbatch version: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "train.py"), trainSource, 0o600); err != nil {
		return sides, fmt.Errorf("write PyTorch's program: %w", err)
	}
	python, torchVersion, err := findTorch()
	if err != nil {
		return sides, err
	}
	return [2]side{ours(program, strings.TrimSpace(string(version))), torch(python, torchVersion)}, nil
}
