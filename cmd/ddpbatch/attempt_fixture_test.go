package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/fakeslurm"
)

// pretendSlurm is a Slurm of shell scripts in front of a command's PATH.
type pretendSlurm struct {
	*fakeslurm.Slurm
	t   *testing.T
	dir string
}

func newPretendSlurm(t *testing.T) *pretendSlurm {
	p := fakeslurm.New(t)
	return &pretendSlurm{p, t, p.Dir}
}

func (p *pretendSlurm) says(name, text string)   { p.t.Helper(); p.Says(name, text) }
func (p *pretendSlurm) calls() []string          { return p.Calls() }
func (p *pretendSlurm) first(name, lines string) { p.t.Helper(); p.First(name, lines) }

// env is the environment of a batch script of job 12.
func (p *pretendSlurm) env(start int, attempt int) (*env, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	return &env{Out: &out, Err: &errs, Dir: "/", Now: time.Now, Environ: p.Environ(start, attempt)}, &out, &errs
}

func attemptRun(t *testing.T, requeue string) *rundir.Dir {
	t.Helper()
	return fakeslurm.Run(t, requeue)
}

func eventsOf(t *testing.T, run *rundir.Dir) []string { t.Helper(); return fakeslurm.Events(t, run) }

const (
	factsLine = fakeslurm.Facts
	silence   = fakeslurm.Silence
)

var (
	savedVerdict = fakeslurm.Saved
	lostVerdict  = fakeslurm.Lost
	runningFacts = fakeslurm.RunningFacts
)

// The process that the batch script starts ends srun soon after Slurm's TERM, and not itself first.
func TestWatchOutlivesTerm(t *testing.T) {
	run := fakeslurm.Run(t, "")
	n, err := run.ClaimAttempt()
	v := rundir.Verdict{Attempt: n, Cause: "node", Exit: 1}
	if err := errors.Join(err, run.Append(rundir.Event{Event: rundir.EventBegin, Attempt: n, Job: "12"}), run.WriteVerdict(v), run.Append(v.Event())); err != nil {
		t.Fatal(err)
	}
	start := func(name string, args ...string) (cmd *exec.Cmd, ended chan error) {
		cmd, ended = exec.Command(name, args...), make(chan error, 1)
		cmd.Env = append(os.Environ(), "SLURM_JOB_ID=12", "DDPBATCH_ATTEMPT="+strconv.Itoa(n))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	srun, srunEnded := start("sleep", "300")
	watch, watchEnded := start("ddpbatch", "attempt", "watch", "--srun", strconv.Itoa(srun.Process.Pid), run.Path())
	awaitIgnored(t, watch.Process.Pid, syscall.SIGUSR1) // main's handlers are there by then
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.After(testkit.Patience) // without TERM it waits for minutes
	select {
	case err := <-srunEnded:
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("srun ended by itself: %v", err)
		}
	case <-late:
		t.Fatal("srun still runs")
	}
	select {
	case err := <-watchEnded:
		if err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	case <-late:
		t.Error("the watch goes on after srun")
	}
}

// awaitIgnored waits until a process ignores a signal.
func awaitIgnored(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("process %d ignores %v", pid, sig), func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nSigIgn:\t")
		mask, _, _ := strings.Cut(rest, "\n")
		ignored, err := strconv.ParseUint(mask, 16, 64)
		return err == nil && ignored&(1<<(sig-1)) != 0
	})
}
