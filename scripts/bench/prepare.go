package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/gloo.py
var glooSource []byte

// prepare builds what is to be launched, in dir; ours comes first. It names everything that is missing at
// once.
func prepare(ctx context.Context, dir string, o options) ([]side, error) {
	program := o.program
	if program == "" {
		program = filepath.Join(dir, "ddpbatch")
		if err := command(ctx, "go", "build", "-o", program, "./cmd/ddpbatch"); err != nil {
			return nil, err
		}
	}
	sides := []side{ours(program, firstLine(ctx, program, "version"), false)}
	if o.alloc {
		sides = append(sides, ours(program, "", true))
	}
	for name, source := range map[string][]byte{"mpi.c": mpiSource, "gloo.py": glooSource} {
		if err := os.WriteFile(filepath.Join(dir, name), source, 0o600); err != nil {
			return nil, fmt.Errorf("write a peer's program: %w", err)
		}
	}
	var here, missing, packages []string
	for _, peer := range o.peers {
		s, err := preparePeer(ctx, dir, peer)
		var lack *missingError
		if errors.As(err, &lack) {
			missing, packages = append(missing, lack.what), append(packages, lack.packages)
			continue
		}
		if err != nil {
			return nil, err
		}
		sides, here = append(sides, s), append(here, peer)
	}
	if len(missing) > 0 {
		hint := "\n  install them (Debian): apt-get install " + strings.Join(packages, " ")
		if len(here) > 0 {
			hint += "\n  or leave them out: --peers " + strings.Join(here, ",")
		}
		return nil, fmt.Errorf("these are not here: %s%s", strings.Join(missing, ", "), hint)
	}
	return sides, nil
}

// missingError is a peer that is not installed.
type missingError struct{ what, packages string }

func (e *missingError) Error() string { return e.what + " is not here" }

func preparePeer(ctx context.Context, dir, peer string) (side, error) {
	switch peer {
	case "openmpi":
		program, err := compile(ctx, dir, "openmpi", &missingError{"Open MPI", "openmpi-bin libopenmpi-dev"})
		return openMPI(program, firstLine(ctx, "mpirun.openmpi", "--version")), err
	case "mpich":
		program, err := compile(ctx, dir, "mpich", &missingError{"MPICH", "mpich libmpich-dev"})
		return mpich(program, firstLine(ctx, "mpichversion")), err
	}
	// Debian's torch belongs to the system's Python, which need not be the first one in PATH.
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		version := firstLine(ctx, python, "-c", "import torch; print('PyTorch', torch.__version__)")
		if version != "" {
			return gloo(python, filepath.Join(dir, "gloo.py"), version), nil
		}
	}
	return side{}, &missingError{"PyTorch", "python3-torch"}
}

// compile makes peers/mpi.c a program of one MPI.
func compile(ctx context.Context, dir, mpi string, lack error) (string, error) {
	for _, tool := range []string{"mpicc." + mpi, "mpirun." + mpi} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", lack
		}
	}
	program := filepath.Join(dir, "mpi."+mpi)
	return program, command(ctx, "mpicc."+mpi, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O3", "-o", program, filepath.Join(dir, "mpi.c"))
}

// command runs a command and shows what it said where it fails.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// firstLine is what a command says first, or empty where it cannot be run.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Join(strings.Fields(line), " ")
}
