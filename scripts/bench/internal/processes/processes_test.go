package processes

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

func TestRunReturnsTheOutput(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "8")
	said, took, err := Run(t.Context(), exec.Command("/bin/sh", "-c", "echo a; echo b$OMP_NUM_THREADS >&2; sleep 0.05"))
	if err != nil || said != "a\nb\n" || took < 50*time.Millisecond {
		t.Errorf("%q, %v, %v", said, took, err)
	}
	_, _, err = Run(t.Context(), exec.Command("/bin/sh", "-c", "echo first; echo the reason >&2; exit 3"))
	if err == nil || err.Error() != "exit code 3: the reason" {
		t.Errorf("a command that fails: %v", err)
	}
	if _, _, err := Run(t.Context(), exec.Command("/nonexistent/zstd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that cannot be started: %v", err)
	}
}

// An interrupt ends a command at once, with all that it has started, and the error distinguishes it from a failure.
func TestRunIsInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := Run(ctx, exec.Command("/bin/sh", "-c", `sleep 1000 & echo $! >"$1"; wait`, "sh", file))
		done <- err
	}()
	testkit.Eventually(t, "it has started something", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && len(text) > 0
	})
	cancel()
	testkit.Within(t, testkit.Patience, func() {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

func TestLinesReceiveWholeLines(t *testing.T) {
	var got []string
	w := &Lines{Receive: func(line string) { got = append(got, line) }}
	for _, piece := range []string{"[n1 0] m", "et\n", " met\r\n[1, 2]\n", "\ncut"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if want := []string{"[n1 0] met", "met", "[1, 2]", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// If processes are still being started during a sweep, the sweep leaves none of them.
func TestSweepFindsTheLate(t *testing.T) {
	mark, file := markVariable+"="+rand.Text(), filepath.Join(t.TempDir(), "started")
	cmd := exec.Command("/bin/sh", "-c", `i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); echo $i >"$1"; done; wait`, "sh",
		file)
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "some have been started", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && len(text) > 0
	})
	sweep(mark)
	if left, err := proc.WithVariables(mark); err != nil || len(left) > 0 {
		t.Errorf("%d processes are left, %v", len(left), err)
	}
	_ = cmd.Wait() // it was killed
}

// A launch does not inherit the variables of an enclosing job, or those that tune one side. It does inherit those that name paths.
func TestEnvironLeavesOutTheJobAround(t *testing.T) {
	var own, want []string
	for _, name := range []string{
		"SLURM_NTASKS", "SLURM_CONF", "SLURM_CLUSTERS", "SLURMD_NODENAME", "SRUN_DEBUG", "SBATCH_PARTITION",
		"PMI_RANK", "PMI2_RANK", "PMIX_RANK",
		"PALS_RANKID", "OMPI_MCA_btl", "PRTE_MCA_plm", "PET_RDZV_ID", "TORCHELASTIC_RUN_ID", "DDPBATCH_TRANSPORT",
		"RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_PORT",
		"OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
		"GLOO_SOCKET_IFNAME", "TORCH_NUM_THREADS",
		"UCX_TLS", "FI_PROVIDER", "MPIR_CVAR_NOLOCAL", "MPICH_ASYNC_PROGRESS", "HYDRA_TOPO_DEBUG", "ZSTD_CLEVEL", "ZSTD_NBTHREADS",
		"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG",
	} {
		own = append(own, name+"=8")
	}
	for _, name := range []string{"PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "RANKS", "GOPATH"} {
		own, want = append(own, name+"=8"), append(want, name+"=8")
	}
	if got := environ(own); !slices.Equal(got, want) {
		t.Errorf("a launch has %q, want %q", got, want)
	}
}
