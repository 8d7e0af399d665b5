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

// MemoryGroup makes a memory cgroup, of version 1 or 2, whichever this machine has, that has so many bytes and no swap, until the test's
// end. A process joins it by writing its id to the file cgroup.procs there.
// It takes root and a hierarchy at its usual place; elsewhere the test is skipped.
func MemoryGroup(t testing.TB, limit int) (dir string) {
	t.Helper()
	parent, file, swap := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", map[string]int{"memory.memsw.limit_in_bytes": limit}
	if _, err := os.Stat(parent); err != nil {
		parent, file, swap = "/sys/fs/cgroup", "memory.max", map[string]int{"memory.swap.max": 0}
	}
	dir, err := os.MkdirTemp(parent, "ddpbatch-test-")
	if err != nil {
		t.Skipf("needs to make a memory cgroup: %v", err)
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
		_ = control(dir, name, bytes) // a kernel that counts no swap has no such file
	}
	return dir
}

// control sets a number of a cgroup, in a file that the kernel has made: where it has made none, this is no cgroup.
func control(dir, name string, n int) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, n)
	return errors.Join(err, f.Close())
}

// EnterTemp skips a test of several users if not all of them can enter the folder for temporary files. Their attacks would fail for that
// reason alone.
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

// Lease holds a lease on the file at path, as Samba and the kernel's NFS server do for their clients (fcntl(2), F_SETLEASE), and gives it
// back once somebody opens the file, as SIGIO asks for; a test in which nobody does fails.
// That signal is the process's: one test at a time.
func Lease(t testing.TB, path string) {
	t.Helper()
	LeaseUntil(t, path, func() error { return nil })
}

// LeaseUntil is Lease for who does something else before it gives the lease back.
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
			released <- errors.New("nobody asked for it")
		}
	}()
	t.Cleanup(func() {
		signal.Stop(asked)
		if err := errors.Join(<-released, holder.Close()); err != nil {
			t.Errorf("the lease of %s: %v", path, err)
		}
	})
}

// SlurmCluster is the path of scripts/slurm-cluster, where ./scripts/test has brought up a cluster. Elsewhere it skips the test, and says
// why there is none.
func SlurmCluster(t testing.TB) string {
	t.Helper()
	script := os.Getenv("DDPBATCH_TEST_SLURM")
	if script == "" {
		why := os.Getenv("DDPBATCH_TEST_NO_SLURM")
		if why == "" {
			why = "./scripts/test starts one where it can, and sets DDPBATCH_TEST_SLURM"
		}
		t.Skip("needs a Slurm cluster: " + why)
	}
	return script
}
