package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// stoppableJob is a run of 2 x 2 ranks that takes long enough to be stopped in the middle.
const stoppableJob = `
schema = 1
name = "long"
[slurm]
nodes = 2
[launch]
nproc_per_node = 2
grace = "20s"
[train]
epochs = 30
batch_size = 8
seed = 3
loss = "mse"
model = { kind = "mlp", hidden = [16], activation = "tanh" }
data = { kind = "generated", rows = 1000, inputs = 20, outputs = 2, noise = 0.1 }
optimizer = { kind = "sgd", lr = 0.02, momentum = 0.9 }
evaluate = { every_epochs = 0 }
[checkpoint]
every_steps = 25
keep_last = 3
`

// command is ddpbatch in dir, and what it prints.
func command(dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	return cmd, &out
}

// runMade opens the run directory that a command has made in dir; nil while there is none.
func runMade(t *testing.T, dir string) *rundir.Dir {
	t.Helper()
	runs, err := rundir.List(filepath.Join(dir, "runs"))
	if err != nil || len(runs) == 0 {
		return nil
	}
	if len(runs) > 1 {
		t.Fatalf("%d runs in %s, want one", len(runs), dir)
	}
	return runs[0]
}

func finalState(t *testing.T, run *rundir.Dir) *checkpoint.State {
	t.Helper()
	dir, err := checkpoint.Open(run.CheckpointsPath(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, _, err := dir.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func sameTensors(t *testing.T, got, want *checkpoint.State) {
	t.Helper()
	if got.Step != want.Step || len(got.Tensors) != len(want.Tensors) || len(want.Tensors) == 0 {
		t.Fatalf("step %d with %d tensors, want step %d with %d", got.Step, len(got.Tensors), want.Step, len(want.Tensors))
	}
	for i, w := range want.Tensors {
		if g := got.Tensors[i]; g.Name != w.Name || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("tensor %s differs from %s of the run that was never stopped", g.Name, w.Name)
		}
	}
}

// TestSimulateStoppedAndResumed stops a run in the middle, in several ways, resumes it, and holds that its last
// parameters and momentum are the bytes of a run that was never stopped.
func TestSimulateStoppedAndResumed(t *testing.T) {
	straight := t.TempDir()
	if err := os.WriteFile(filepath.Join(straight, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(straight, "simulate", "long.toml")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := finalState(t, runMade(t, straight))

	for _, tt := range []struct {
		name    string
		release string // of Slurm
		stop    func(t *testing.T, simulate *exec.Cmd, run *rundir.Dir)
		exit    int
	}{
		{"Ctrl-C", "22.05", func(t *testing.T, c *exec.Cmd, _ *rundir.Dir) { c.Process.Signal(syscall.SIGINT) }, 130},
		{"Ctrl-C, 25.11", "25.11", func(t *testing.T, c *exec.Cmd, _ *rundir.Dir) { c.Process.Signal(syscall.SIGINT) }, 130},
		{"TERM", "22.05", func(t *testing.T, c *exec.Cmd, _ *rundir.Dir) { c.Process.Signal(syscall.SIGTERM) }, 143},
		{"TERM, 25.11", "25.11", func(t *testing.T, c *exec.Cmd, _ *rundir.Dir) { c.Process.Signal(syscall.SIGTERM) }, 143},
		{"a rank is killed", "22.05", func(t *testing.T, _ *exec.Cmd, run *rundir.Dir) {
			syscall.Kill(processOf(t, run, "RANK=2"), syscall.SIGKILL)
		}, 137},
		{"simulate is killed", "22.05", func(t *testing.T, c *exec.Cmd, _ *rundir.Dir) { c.Process.Kill() }, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, out := command(dir, "simulate", "long.toml", "--slurm", tt.release)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var run *rundir.Dir
			eventually(t, time.Minute, "the run passes step 300", func() bool {
				if run == nil {
					run = runMade(t, dir)
					return false
				}
				m, ok, err := run.LastMetrics()
				return err == nil && ok && m.Step >= 300
			})
			tt.stop(t, cmd, run)
			err := cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tt.exit {
				t.Errorf("exit code %d (%v), want %d\n%s", code, err, tt.exit, out)
			}
			eventually(t, time.Minute, "no process of the run is left", func() bool { return len(processesOf(run)) == 0 })

			stopped := finalState(t, run)
			// Step 275 was begun to be saved, before which the save of step 250 was over.
			if stopped.Step < 250 || stopped.Step >= want.Step {
				t.Fatalf("the newest checkpoint is of step %d, want one from the middle of %d", stopped.Step, want.Step)
			}
			again, out := command(dir, "resume", run.Path())
			if err := again.Run(); err != nil {
				t.Fatalf("resume: %v\n%s", err, out)
			}
			if strings.Contains(out.String(), "rank 0 | epoch 0 ") {
				t.Errorf("resume began anew:\n%s", out)
			}
			sameTensors(t, finalState(t, run), want)
			status, out := command(dir, "status", "--json", run.Path())
			if err := status.Run(); err != nil {
				t.Fatalf("status: %v\n%s", err, out)
			}
			var rows []runview.RunStatus
			if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 || rows[0].State != "COMPLETED" || rows[0].Attempt != 2 {
				t.Errorf("status: %v\n%s", err, out)
			}
		})
	}
}

// processesOf lists the processes that carry a run's directory in their environment.
func processesOf(run *rundir.Dir) []int {
	return processesWith("DDPBATCH_RUN_DIR=" + run.Path())
}

// processOf is the worker of a run that has one variable more.
func processOf(t *testing.T, run *rundir.Dir, variable string) int {
	t.Helper()
	pids := processesWith("DDPBATCH_RUN_DIR="+run.Path(), variable)
	if len(pids) != 1 {
		t.Fatalf("%d processes have %s, want one", len(pids), variable)
	}
	return pids[0]
}
