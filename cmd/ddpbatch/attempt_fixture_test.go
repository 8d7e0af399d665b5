package main

import (
	"bytes"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// pretendSlurm is a set of shell scripts that stand in for Slurm's commands and come first in a command's PATH.
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

// env returns the environment of a batch script of job 12.
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
