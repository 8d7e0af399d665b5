package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// MemoryGroup creates a memory cgroup, of version 1 or 2 as this machine has, with limit bytes and no swap, until the end of the test. A
// process joins it by writing its ID to the file cgroup.procs there. It needs root and a hierarchy at the usual place; otherwise the test
// is skipped.
func MemoryGroup(t testing.TB, limit int) (dir string) {
	t.Helper()
	parent, file, swap := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", map[string]int{"memory.memsw.limit_in_bytes": limit}
	if _, err := os.Stat(parent); err != nil {
		parent, file, swap = "/sys/fs/cgroup", "memory.max", map[string]int{"memory.swap.max": 0}
	}
	dir, err := os.MkdirTemp(parent, "ddpbatch-test-")
	if err != nil {
		t.Skipf("needs to create a memory cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("the memory cgroup: %v", err)
		}
	})
	if err := control(dir, file, limit); err != nil {
		t.Skipf("needs to limit the memory of a cgroup: %v", err)
	}
	for name, bytes := range swap {
		_ = control(dir, name, bytes) // a kernel that does not count swap has no such file
	}
	return dir
}

// control writes a number to a file of a cgroup, which the kernel has created. If the file does not exist, this is not a cgroup.
func control(dir, name string, n int) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, n)
	return errors.Join(err, f.Close())
}

// EnterTemp skips a test of several users if not all of them can enter the directory for temporary files, because their attacks would fail
// for that reason alone.
func EnterTemp(t testing.TB) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			t.Skipf("TMPDIR (%s) is closed to other users: %s has mode %o", os.TempDir(), dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return
		}
	}
}

// ProgramVariable names the ddpbatch that tests run. ./scripts/test builds it once for all packages.
const ProgramVariable = "DDPBATCH_TEST_PROGRAM"

// WithProgram runs f with the path of a ddpbatch as it is shipped: the one that ProgramVariable names, or one that it builds and removes
// after f. The file's name is ddpbatch, so that its directory can be added to PATH. WithProgram is for TestMain: it returns f's exit code,
// or 1 if the program cannot be built, after printing the error.
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

// Lease holds a lease on the file at path, as Samba and the kernel's NFS server do for their clients (fcntl(2), F_SETLEASE). When another
// process opens the file, the kernel sends SIGIO, and Lease releases the lease. If no process opens it, the test fails. The signal belongs
// to the process, so only one test may use it at a time.
func Lease(t testing.TB, path string) {
	t.Helper()
	LeaseUntil(t, path, func() error { return nil })
}

// LeaseUntil is Lease with something to do before the lease is released.
func LeaseUntil(t testing.TB, path string, do func() error) {
	t.Helper()
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGIO)
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		signal.Stop(asked)
		holder.Close()
		t.Skip("this file system has no leases:", err)
	}
	released := make(chan error, 1)
	go func() {
		select {
		case <-asked:
			err := do()
			_, unlocked := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
			released <- errors.Join(err, unlocked)
		case <-t.Context().Done():
			released <- errors.New("no process opened the file")
		}
	}()
	t.Cleanup(func() {
		signal.Stop(asked)
		if err := errors.Join(<-released, holder.Close()); err != nil {
			t.Errorf("the lease of %s: %v", path, err)
		}
	})
}

// SlurmCluster returns the path of scripts/slurm-cluster if ./scripts/test has started a cluster. Otherwise it skips the test, and says
// why.
func SlurmCluster(t testing.TB) string {
	t.Helper()
	script := os.Getenv("DDPBATCH_TEST_SLURM")
	if script == "" {
		why := os.Getenv("DDPBATCH_TEST_NO_SLURM")
		if why == "" {
			why = "./scripts/test starts one if it can, and sets DDPBATCH_TEST_SLURM"
		}
		t.Skip("needs a Slurm cluster: " + why)
	}
	return script
}
