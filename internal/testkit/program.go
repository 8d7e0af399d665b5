package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ProgramVariable names the ddpbatch that tests start. ./scripts/test builds it once for all packages.
const ProgramVariable = "DDPBATCH_TEST_PROGRAM"

// WithProgram runs f with the path of a ddpbatch as it is shipped: the one that ProgramVariable names, else one that it builds, and removes
// after f. The file's name is ddpbatch, so that its folder can go into PATH. WithProgram is for TestMain: it returns f's exit code, or 1
// where the program cannot be built, and then has said so on standard error.
func WithProgram(f func(program string) int) int {
	if program := os.Getenv(ProgramVariable); program != "" {
		if !filepath.IsAbs(program) || filepath.Base(program) != "ddpbatch" {
			fmt.Fprintf(os.Stderr, "%s=%s: want the absolute path of a file named ddpbatch\n", ProgramVariable, program)
			return 1
		}
		return f(program)
	}
	dir, err := os.MkdirTemp("", "ddpbatch-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "build ddpbatch for the tests:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "ddpbatch")
	build := exec.Command("go", "build", "-o", program, "ddpbatch/cmd/ddpbatch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build ddpbatch for the tests: %v\n%s", err, out)
		return 1
	}
	return f(program)
}
