package main

import (
	"os"
	"slices"
	"sync"
	"syscall"

	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// batchScript is the part of a job's batch script that signals concern.
type batchScript struct {
	stopFile string

	mu      sync.Mutex
	signals []string
	events  []sim.Event
	killed  bool
}

// Signal is the script's trap: a warning makes it write the stop file, and of the others that it catches it takes note. The job file's
// rules let no other signal reach it.
func (b *batchScript) Signal(sig syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch sig {
	case syscall.SIGKILL:
		b.killed = true
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		b.signals = append(b.signals, slurm.Warning{Signal: sig}.Name())
	case syscall.SIGUSR1, syscall.SIGUSR2:
		b.signals = append(b.signals, slurm.Warning{Signal: sig}.Name())
		_ = os.WriteFile(b.stopFile, nil, 0o600) // a warning that nobody hears is what the time limit is for
	}
}

// event takes note of what Slurm does to the job.
func (b *batchScript) event(e sim.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// strike takes note of a fault that is something of Slurm's.
func (b *batchScript) strike(f sim.Fault) {
	switch f.Kind {
	case sim.Term:
		b.event(sim.Preempted)
	case sim.Timeout:
		b.event(sim.TimeLimit)
	case sim.Warn:
		b.event(sim.Warned)
	}
}

func (b *batchScript) had(e sim.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.events, e)
}

func (b *batchScript) got() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.signals)
}

func (b *batchScript) dead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.killed
}
