package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Ddpbatch returns the program to measure, and its version: the given program, or, if that is "", this tree's, which it builds in dir.
func Ddpbatch(ctx context.Context, dir, given string) (program, version string, err error) {
	program = given
	if program == "" {
		program = filepath.Join(dir, "ddpbatch")
		if err := Run(ctx, "go", "build", "-o", program, "./cmd/ddpbatch"); err != nil {
			return "", "", err
		}
	}
	version = FirstLine(ctx, program, "version")
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case version == "":
		return "", "", fmt.Errorf("%s does not print a version: is it ddpbatch?", program)
	}
	return program, version, nil
}

// MPI is a program of an MPI library.
type MPI struct {
	Name, Version string
	command       []string // launches the program
	program       string
}

// libraries are the MPI libraries, by the last part of their commands' names.
var libraries = map[string]struct {
	missing MissingError
	version []string // a command whose first line has the version
}{
	"openmpi": {MissingError{"Open MPI", "openmpi-bin libopenmpi-dev"}, []string{"mpirun.openmpi", "--version"}},
	"mpich":   {MissingError{"MPICH", "mpich libmpich-dev"}, []string{"mpichversion"}},
}

// CompileMPI compiles a C source for one MPI library, openmpi or mpich, in dir. The error is a [MissingError] if that is not installed.
func CompileMPI(ctx context.Context, dir, mpi string, source []byte) (MPI, error) {
	library := libraries[mpi]
	m := MPI{Name: library.missing.What, command: []string{"mpirun." + mpi}, program: filepath.Join(dir, "mpi."+mpi)}
	for _, tool := range []string{"mpicc." + mpi, "mpirun." + mpi} {
		if _, err := exec.LookPath(tool); err != nil {
			return m, &library.missing
		}
	}
	if mpi == "openmpi" { // there may be more ranks than cores, and the user may be root
		m.command = append(m.command, "--oversubscribe")
		if os.Geteuid() == 0 {
			m.command = append(m.command, "--allow-run-as-root")
		}
	}
	m.Version = FirstLine(ctx, library.version[0], library.version[1:]...)
	file := m.program + ".c"
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return m, err
	}
	return m, Run(ctx, "mpicc."+mpi, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O3", "-o", m.program, file)
}

// Command returns a command that launches a number of ranks with the program's arguments. options are the launcher's.
func (m MPI) Command(ranks int, options []string, args ...string) *exec.Cmd {
	words := slices.Concat(m.command, options, []string{"-n", strconv.Itoa(ranks), m.program}, args)
	return exec.Command(words[0], words[1:]...)
}

// FindTorch looks for a Python that has PyTorch. Debian's PyTorch belongs to the system's Python, which need not be the first in PATH. If
// there is none, the error is a [MissingError].
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

// FindZstd returns a [MissingError] if the command zstd is not installed.
func FindZstd() error {
	if _, err := exec.LookPath("zstd"); err != nil {
		return &MissingError{"zstd", "zstd"}
	}
	return nil
}

// MissingError means that a peer is not installed.
type MissingError struct{ What, Packages string } // Packages: the names of Debian's packages

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed; install it (Debian): apt-get install %s", e.What, e.Packages)
}

// EachPeer calls add for each of the peers that --peers lists. Its error names everything that is missing.
func EachPeer(peers []string, add func(peer string) error) error {
	var here, missing, packages []string
	for _, peer := range peers {
		err := add(peer)
		var lack *MissingError
		switch {
		case errors.As(err, &lack):
			missing, packages = append(missing, lack.What), append(packages, lack.Packages)
		case err != nil:
			return err
		default:
			here = append(here, peer)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("these are not installed: %s\n  install them (Debian): apt-get install %s\n  or leave them out: --peers %s",
		strings.Join(missing, ", "), strings.Join(packages, " "), cmp.Or(strings.Join(here, ","), "none"))
}

// Run runs a command. If it fails, the error has its output.
func Run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// FirstLine returns the first line of a command's output, or "" if it cannot be run.
func FirstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Join(strings.Fields(line), " ")
}

// LastLine returns the last line of a program's output, which is the reason if it failed.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
