package sim

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

// child starts a shell with the given variables, and waits for its first line.
func child(t *testing.T, script string, environ ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo ready; "+script)
	cmd.Env = append(environ, "PATH=/usr/bin:/bin")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// endAll kills the processes that have all of the given variables.
func endAll(t *testing.T, pairs ...string) {
	t.Helper()
	all, err := proc.WithVariables(pairs...)
	if err != nil {
		t.Error(err)
	}
	for _, p := range all {
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
}

// worker finds a rank by its run and number. It does not return the rank's own children or ranks of other runs. If there are two such
// ranks, it returns the newer one.
func TestWorkerIsFoundByRunAndRank(t *testing.T) {
	run := t.TempDir()
	if _, ok, err := worker(run, 1); ok || err != nil {
		t.Fatal("there is a rank before any was started")
	}
	child(t, "read -r _ </dev/zero", "DDPBATCH_RUN_DIR="+run, "RANK=11")
	child(t, "read -r _ </dev/zero", "DDPBATCH_RUN_DIR="+run+"x", "RANK=1")
	for range 2 {
		want := child(t, "sleep 1000 & sleep 1000; wait", "DDPBATCH_RUN_DIR="+run, "RANK=1")
		found := 0
		deadline := time.Now().Add(testkit.Patience)
		for found != want.Process.Pid && time.Now().Before(deadline) { // start times have a resolution of a hundredth of a second
			if p, ok, err := worker(run, 1); ok {
				found = p.PID
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if found != want.Process.Pid {
			t.Errorf("rank 1 is process %d, want %d", found, want.Process.Pid)
		}
		// The children of the shell do not outlive the test.
		t.Cleanup(func() {
			endAll(t, "DDPBATCH_RUN_DIR="+run, "RANK=1")
		})
		for range 3 { // the next one starts in another tick
			exec.Command("true").Run()
		}
	}
}

func TestKillNodeEndsItsProcessesAlone(t *testing.T) {
	run := t.TempDir()
	t.Cleanup(func() { endAll(t, "DDPBATCH_RUN_DIR="+run) })
	gone := child(t, "while :; do sleep 1000 & sleep 0.01; done", "DDPBATCH_RUN_DIR="+run, "SLURMD_NODENAME=node1", "RANK=0")
	other := child(t, "sleep 1000", "DDPBATCH_RUN_DIR="+run, "SLURMD_NODENAME=node2", "RANK=1")
	if err := killNode(run, "node1"); err != nil {
		t.Fatal(err)
	}
	if err := gone.Wait(); err == nil || gone.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("%v", err)
	}
	// A killed process exists until the kernel has ended it.
	testkit.Eventually(t, "no process of the node is left", func() bool {
		left, err := proc.WithVariables("DDPBATCH_RUN_DIR="+run, "SLURMD_NODENAME=node1")
		return err == nil && len(left) == 0
	})
	if _, err := os.Stat("/proc/" + strconv.Itoa(other.Process.Pid) + "/exe"); err != nil {
		t.Errorf("the other node's process: %v", err)
	}
}
