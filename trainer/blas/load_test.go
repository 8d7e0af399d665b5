//go:build !static && linux && (amd64 || arm64)

package blas

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/internal/testkit"
)

const childVariable = "DDPBATCH_TEST_BLAS_CHILD"

// TestMain runs the child of TestEachLibraryOpensWithItsThreads if the environment asks for it. The child loads only one library.
func TestMain(m *testing.M) {
	spec := os.Getenv(childVariable)
	if spec == "" {
		os.Exit(m.Run())
	}
	if err := child(spec); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// TestEachLibraryOpensWithItsThreads starts a process for each library. The process opens the library with three threads.
func TestEachLibraryOpensWithItsThreads(t *testing.T) {
	foreignLibrary(t, 1)
	for _, spec := range append(installed(t), Auto) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+spec, "OMP_NUM_THREADS=7", "GORACE=atexit_sleep_ms=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", spec, err, out)
		}
	}
}

func child(spec string) error {
	const threads = 3
	lib, info, err := Open(Config{Library: spec, Threads: threads})
	if err != nil {
		return err
	}
	if info.Threads == threads && !strings.Contains(info.Version, "OPENMP") { // OpenMP starts its threads later
		if err := startedBlocking(threads - 1); err != nil {
			return fmt.Errorf("%v: %w", info, err)
		}
	}
	if err := sameBitsAgain(lib); err != nil {
		return err
	}
	return signalsAndChildren(lib)
}

// startedBlocking waits until exactly want threads block signals. Go's own threads also block signals while they start.
func startedBlocking(want int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(testkit.Patience); ; <-tick.C {
		switch got := blocking(); {
		case got == want:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d threads block signals, want the %d that the library started", got, want)
		}
	}
}

// sameBitsAgain compares products that several threads of Go compute. OpenMP sets its number of threads for each calling thread.
func sameBitsAgain(lib Library) error {
	first := newProduct(blas.Trans, blas.NoTrans, 300, 200, 400, 0, 1, 0)
	first.run(lib)
	wrong := make([]int, 4)
	var callers sync.WaitGroup
	for i := range wrong {
		callers.Go(func() {
			runtime.LockOSThread() // each goroutine has a thread of its own
			defer runtime.UnlockOSThread()
			p := newProduct(blas.Trans, blas.NoTrans, 300, 200, 400, 0, 1, 0)
			for range 3 {
				p.run(lib)
				if !slices.EqualFunc(p.c, first.c, sameBits) {
					wrong[i]++
				}
			}
		})
	}
	callers.Wait()
	if slices.Max(wrong) > 0 {
		return fmt.Errorf("of 3 products each, %v have other bits than the first", wrong)
	}
	return nil
}

// signalsAndChildren checks that, while products are computed, signals reach Go's handlers and processes can be started. These do not
// inherit the environment that was set for the library.
func signalsAndChildren(lib Library) error {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		p := newProduct(blas.NoTrans, blas.NoTrans, 256, 256, 256, 0, 1, 0)
		for {
			select {
			case <-stop:
				return
			default:
				p.run(lib)
			}
		}
	}()
	for i := range 20 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case <-terms:
		case <-time.After(testkit.Patience):
			return fmt.Errorf("signal %d was lost", i)
		}
	}
	for range 3 {
		out, err := exec.Command("/bin/sh", "-c", "echo $OMP_NUM_THREADS").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "7" {
			return fmt.Errorf("a child says OMP_NUM_THREADS is %q, want 7: %v", out, err)
		}
	}
	close(stop)
	<-stopped
	return nil
}

// blocking counts the threads of this process that block SIGTERM.
func blocking() int {
	files, _ := filepath.Glob("/proc/self/task/*/status")
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		var mask uint64
		_, rest, _ := strings.Cut(string(text), "SigBlk:")
		if _, err := fmt.Sscanf(rest, "%x", &mask); err == nil && mask>>(syscall.SIGTERM-1)&1 == 1 {
			count++
		}
	}
	return count
}

// An OpenBLAS that has kernels for several processors and chose those of an old one does not know the machine's.
func TestOldKernelsAreAdvisedAgainst(t *testing.T) {
	const version = "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY %s MAX_THREADS=64"
	for _, test := range []struct {
		kernels      string
		avx2, avx512 bool
		want         string
	}{
		{"Prescott", true, true, "OPENBLAS_CORETYPE=SkylakeX"},
		{"Prescott", true, false, "OPENBLAS_CORETYPE=Haswell"},
		{"Prescott", false, false, ""},
		{"SkylakeX", true, true, ""},
		{"Zen", true, false, ""},
	} {
		got := adviceKernels(fmt.Sprintf(version, test.kernels), test.avx2, test.avx512)
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%+v: %q", test, got)
		}
	}
	if got := adviceKernels("OpenBLAS 0.3.21 Prescott", true, true); got != "" {
		t.Errorf("a build for one processor: %q", got)
	}
}
