package tools

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are Debian's, of each MPI by the last part of its commands' names.
var packages = map[string]*MissingError{
	"openmpi": {"Open MPI", "openmpi-bin libopenmpi-dev"},
	"mpich":   {"MPICH", "mpich libmpich-dev"},
}

// CompileMPI makes a C source a program of one MPI, openmpi or mpich, beside it. A [MissingError]: it is not installed.
func CompileMPI(ctx context.Context, source, mpi string) (program string, err error) {
	for _, tool := range []string{"mpicc." + mpi, "mpirun." + mpi} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", packages[mpi]
		}
	}
	program = strings.TrimSuffix(source, filepath.Ext(source)) + "." + mpi
	return program, Run(ctx, "mpicc."+mpi, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O3", "-o", program, source)
}

// FindTorch looks for a Python that has PyTorch: Debian's belongs to the system's, which need not be the first one in PATH. A
// [MissingError]: there is none.
func FindTorch(ctx context.Context) (python, version string, err error) {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if version := FirstLine(ctx, python, "-c", "import torch; print('PyTorch', torch.__version__)"); version != "" {
			return python, version, nil
		}
	}
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	return "", "", &MissingError{"PyTorch", "python3-torch"}
}

// FindZstd is a [MissingError] where there is no command zstd.
func FindZstd() error {
	if _, err := exec.LookPath("zstd"); err != nil {
		return &MissingError{"zstd", "zstd"}
	}
	return nil
}
