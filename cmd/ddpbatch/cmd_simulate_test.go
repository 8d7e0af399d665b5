package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm/sim"
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

// command returns a ddpbatch command in dir, and the buffer that receives its output.
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

// TestResumedSimulationEndsInTheSameBytes stops a run in the middle, in several ways, and resumes it. Its final parameters and momentum
// have the same bytes as those of a run that was never stopped.
func TestResumedSimulationEndsInTheSameBytes(t *testing.T) {
	// long enough that a late stop still comes in the middle
	job := strings.Replace(stoppableJob, "epochs = 30", "epochs = 60", 1)
	straight := t.TempDir()
	if err := os.WriteFile(filepath.Join(straight, "long.toml"), []byte(job), 0o600); err != nil {
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
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(job), 0o600); err != nil {
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
			// The save of step 275 had begun, so the save of step 250 was complete.
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
			if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 ||
				rows[0].State != "COMPLETED" || rows[0].Attempt != 2 {
				t.Errorf("status: %v\n%s", err, out)
			}
		})
	}
}

// processesOf lists the processes that carry a run's directory in their environment.
func processesOf(run *rundir.Dir) []int {
	return processesWith("DDPBATCH_RUN_DIR=" + run.Path())
}

// processOf returns the worker of a run that also has the given variable.
func processOf(t *testing.T, run *rundir.Dir, variable string) int {
	t.Helper()
	pids := processesWith("DDPBATCH_RUN_DIR="+run.Path(), variable)
	if len(pids) != 1 {
		t.Fatalf("%d processes have %s, want one", len(pids), variable)
	}
	return pids[0]
}

// A run that is canceled or interrupted saves first. Its message says which of the two happened, it prints once how to resume, and its
// state is CANCELLED.
func TestSimulationEndedByHandIsCancelled(t *testing.T) {
	for name, tt := range map[string]struct {
		release   string // of Slurm
		interrupt bool
		exit      int
		message   string
	}{
		"Ctrl-C":        {"22.05", true, 130, "interrupted; the workers saved first"},
		"Ctrl-C, 25.11": {"25.11", true, 130, "interrupted; the workers saved first"},
		"cancel":        {"22.05", false, 143, "cancelled; the workers saved first"},
		"cancel, 25.11": {"25.11", false, 143, "cancelled; the workers saved first"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, out := command(dir, "simulate", "long.toml", "--slurm", tt.release, "--set", "train.epochs=6000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() }).Stop() // longer than all waits below
			eventually(t, time.Minute, "the run trains", func() bool {
				run := runMade(t, dir)
				if run == nil {
					return false
				}
				m, ok, err := run.LastMetrics()
				return err == nil && ok && m.Step >= 100
			})
			run := runMade(t, dir)
			if row := oneStatus(t, dir, run.Path()); row.State != "RUNNING" {
				t.Errorf("while it runs, status is %s", row.State)
			}
			if tt.interrupt {
				cmd.Process.Signal(syscall.SIGINT)
			} else if cancel, said := command(dir, "cancel", run.Path()); cancel.Run() != nil ||
				!strings.Contains(said.String(), "cancelled job") {
				t.Errorf("cancel: %s", said)
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tt.exit {
				t.Errorf("exit code %d, want %d\n%s", code, tt.exit, out)
			}
			if n := strings.Count(out.String(), "resume: "); n != 1 || !strings.Contains(out.String(), "ddpbatch: "+tt.message+"\n") {
				t.Errorf("it says %d times how to resume:\n%s", n, out)
			}
			if row := oneStatus(t, dir, run.Path()); row.State != "CANCELLED" || row.Message != tt.message {
				t.Errorf("status is %s, %s", row.State, row.Message)
			}
			before := eventsOf(t, run)
			again, said := command(dir, "cancel", run.Path())
			if again.Run(); again.ProcessState.ExitCode() != exit.Usage ||
				!strings.Contains(said.String(), "has ended already: CANCELLED ("+tt.message+"); there is nothing to cancel\n") {
				t.Errorf("cancelled twice: %s", said)
			}
			if after := eventsOf(t, run); !slices.Equal(after, before) {
				t.Errorf("a cancel of what has ended changed the ledger: %q, then %q", before, after)
			}
			eventually(t, testkit.Patience, "no process of the run is left", func() bool { return len(processesOf(run)) == 0 })
		})
	}
}

// oneStatus returns what status prints for one run.
func oneStatus(t *testing.T, dir, run string) runview.RunStatus {
	t.Helper()
	cmd, out := command(dir, "status", "--json", run)
	if err := cmd.Run(); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	var rows []runview.RunStatus
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("status: %v\n%s", err, out)
	}
	return rows[0]
}

// pretendRun returns a run of simulate whose copy of ddpbatch is another program, which ends at once and asks to be started again.
func pretendRun(t *testing.T) (*rundir.Dir, *jobfile.Job) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 75\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := fakeslurm.RunOf(t, "simulate", program, "")
	job, err := jobfile.OfRun(run)
	if err != nil {
		t.Fatal(err)
	}
	return run, job
}

// play simulates the job under a release of Slurm. It passes each piece of output to said.
func play(ctx context.Context, t *testing.T, run *rundir.Dir, job *jobfile.Job, release sim.Release, said func(string)) error {
	t.Helper()
	out := &listener{said: said}
	e := &env{
		Out: out, Err: out, Dir: "/", Hostname: "h", Now: time.Now, Environ: os.Environ(),
		Terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	p := simulate.DefaultPretend()
	p.Release = release
	err := simulateRun(ctx, e, run, job, p, nil)
	t.Logf("%v\n%s", err, &out.all)
	return err
}

// listener is an output that passes each write to a function.
type listener struct {
	said func(string)
	mu   sync.Mutex
	all  bytes.Buffer
}

func (h *listener) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said(string(p))
	return h.all.Write(p)
}

// If a user ends a job after it was requeued and before it begins again, it ends for good.
func TestSimulationEndedBetweenAttemptsStaysEnded(t *testing.T) {
	for name, test := range map[string]struct {
		said string // the output at which the user does it
		sig  syscall.Signal
		word string
	}{
		"Ctrl-C while it waits":               {"requeued (", syscall.SIGINT, "interrupted"},
		"cancelled while it waits":            {"requeued (", syscall.SIGTERM, "cancelled"},
		"Ctrl-C when the requeue was decided": {"no agent left a verdict", syscall.SIGINT, "interrupted"},
	} {
		for _, release := range sim.Releases {
			t.Run(name+", "+string(release), func(t *testing.T) {
				run, job := pretendRun(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				err := play(ctx, t, run, job, release, func(text string) {
					if strings.Contains(text, test.said) {
						cancel(launch.SignalError{Sig: test.sig})
					}
				})
				if exitCode(err) != 128+int(test.sig) {
					t.Errorf("exit code %d, want %d", exitCode(err), 128+int(test.sig))
				}
				if got, want := eventsOf(t, run), []string{"begin", "end", "requeue", "refused", "give-up"}; !slices.Equal(got, want) {
					t.Errorf("ledger %q, want %q", got, want)
				}
				if v, err := run.Verdict(1); err != nil || v.Requeue || v.Cause != "cancelled" ||
					!strings.HasPrefix(v.Message, test.word+" before it began again") {
					t.Errorf("verdict %+v, %v", v, err)
				}
				row, err := (&env{Dir: "/", Environ: os.Environ(), Now: time.Now}).viewer().Status(t.Context(), run)
				if err != nil || row.State != "CANCELLED" || !row.Ended || strings.Contains(row.Next, "starts again") {
					t.Errorf("status %+v, %v", row, err)
				}
			})
		}
	}
}

// If the agents of an attempt cannot be started, the attempt has ended, and its verdict gives the reason.
func TestSimulationThatCannotStartSaysWhy(t *testing.T) {
	run, job := pretendRun(t)
	if err := os.Chmod(run.Binary(), 0o600); err != nil {
		t.Fatal(err)
	}
	err := play(t.Context(), t, run, job, sim.Slurm2205, func(string) {})
	if exitCode(err) != exit.Failed || !errors.Is(err, syscall.EACCES) {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if got, want := eventsOf(t, run), []string{"begin", "end"}; !slices.Equal(got, want) {
		t.Errorf("ledger %q, want %q", got, want)
	}
	v, verdictErr := run.Verdict(1)
	if verdictErr != nil || v.Cause != "start" || v.Exit != exit.Failed || v.Message != err.Error() {
		t.Errorf("verdict %+v, %v; want the message %v", v, verdictErr, err)
	}
	row, statusErr := (&env{Dir: "/", Environ: os.Environ(), Now: time.Now}).viewer().Status(t.Context(), run)
	if statusErr != nil || row.State != "FAILED" || !row.Ended || row.Message != err.Error() {
		t.Errorf("status %+v, %v", row, statusErr)
	}
}
