package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/stats"
)

// launchLimit is when a launch is abandoned: long after the longest launch on a busy machine.
const launchLimit = 5 * time.Minute

// setting is the setting of one row of a table.
type setting struct {
	model
	ranks int
}

func (s setting) String() string { return fmt.Sprintf("%s, %d x 1", s.name, s.ranks) }

// measure launches both sides in turn, the given number of times. Every second turn begins with the other side.
func measure(ctx context.Context, o options, s setting, sides [2]side, dir string, progress io.Writer) (modelRow, error) {
	r := newModelRow(s, o.Launches)
	err := paired.InTurn(ctx, s.String(), o.Launches, len(sides), progress, func(turn, side int) error {
		got, err := launch(ctx, s, sides[side], dir)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.add(turn, side, sides[side].name, got, err)
		return nil
	})
	r.compare()
	return r, err
}

// launch runs one side once, in a new directory below the data, with the job file in it.
func launch(ctx context.Context, s setting, side side, data string) (result, error) {
	dir, err := os.MkdirTemp(data, "launch-")
	if err != nil {
		return result{}, fmt.Errorf("make a working folder: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, s.name+".toml"), []byte(s.jobText(s.ranks)), 0o600); err != nil {
		return result{}, fmt.Errorf("write the job file: %w", err)
	}
	if err := processes.ForgetPeak(); err != nil {
		return result{}, err
	}
	commands := side.commands(s.model, s.ranks, dir)
	var output bytes.Buffer
	out, err := processes.Launch(ctx, launchLimit, &output, nil, commands...)
	switch {
	case err != nil:
		return result{}, err
	case out.Fault != nil:
		return result{}, out.Fault
	}
	got, err := side.read(s.model, dir, output.Bytes())
	got.PeakMiB = peak(commands)
	return got, err
}

// Indices of the sides: ours and PyTorch's.
const (
	own = iota
	peer
)

// modelRow holds the results for one setting.
type modelRow struct {
	Model      string           `json:"model"`
	Ranks      int              `json:"ranks"`
	StepMS     [2]stats.Samples `json:"step_ms"` // of ddpbatch, of PyTorch; by turn
	PeakMiB    [2]stats.Samples `json:"peak_mib"`
	Loss       [2]stats.Samples `json:"loss"`
	Parameters [2]int           `json:"parameters"`
	BLAS       string           `json:"blas"`    // the library of PyTorch's matrix products
	Exposed    stats.Samples    `json:"exposed"` // of ddpbatch
	Outside    stats.Number     `json:"outside"` // likewise: share of a step outside matrix products; NaN: not measured
	Speed      stats.Number     `json:"speed"`   // samples/s, ours / theirs
	Interval   stats.Interval   `json:"interval"`
	Memory     stats.Number     `json:"memory"`    // ours / theirs
	Different  bool             `json:"different"` // the losses show that the sides do not train the same model
	Faults     []string         `json:"faults"`

	setting setting
}

func newModelRow(s setting, launches int) modelRow {
	r := modelRow{Model: s.name, Ranks: s.ranks, Outside: stats.Number(math.NaN()), Faults: []string{}, setting: s}
	for _, of := range []*stats.Samples{&r.StepMS[own], &r.StepMS[peer], &r.PeakMiB[own], &r.PeakMiB[peer], &r.Loss[own],
		&r.Loss[peer], &r.Exposed} {
		*of = paired.Missing(launches)
	}
	return r
}

// add adds the result of a side's launch. A value that a launch lacks is missing, and is shown so.
func (r *modelRow) add(turn, side int, name string, got result, err error) {
	if err == nil && got.Parameters != r.setting.parameters {
		err = fmt.Errorf("a model of %d parameters, want %d", got.Parameters, r.setting.parameters)
	}
	if err != nil {
		r.Faults = append(r.Faults, fmt.Sprintf("%s, launch %d of %v: %v", name, turn+1, r.setting, err))
		return
	}
	r.StepMS[side][turn], r.PeakMiB[side][turn], r.Loss[side][turn] = got.StepMS, got.PeakMiB, got.Loss
	r.Parameters[side] = got.Parameters
	if side == own {
		r.Exposed[turn] = got.Exposed
	} else {
		r.BLAS = got.BLAS
	}
}

// lossApart is the permitted relative difference of losses: the GPT's initial values differ, but have the same distribution.
const lossApart = 0.05

// compare compares the sides launch by launch.
func (r *modelRow) compare() {
	if ours, theirs := r.Loss[own].Median(), r.Loss[peer].Median(); math.Abs(ours-theirs) > lossApart*theirs {
		r.Different = true
		r.Faults = append(r.Faults, fmt.Sprintf("%v: a loss of %.4f and one of %.4f: the sides do not train the same",
			r.setting, ours, theirs))
	}
	speed := paired.Compare(r.StepMS[peer], r.StepMS[own]) // the inverse of times
	r.Speed, r.Interval = speed.Ratio, speed.Interval
	r.Memory = paired.Compare(r.PeakMiB[own], r.PeakMiB[peer]).Ratio
}

// samplesPerS returns the median over a side's launches, for all ranks together.
func (r *modelRow) samplesPerS(side int) float64 {
	return 1000 * float64(r.setting.batch*r.Ranks) / r.StepMS[side].Median()
}

// verdict returns win, even, lose, or "-" if PyTorch has fewer than two launches.
func (r *modelRow) verdict() string {
	if r.Different || slices.ContainsFunc(r.StepMS[own], math.IsNaN) { // the row is lost, whatever else it says
		return "lose"
	}
	// the speed is the inverse
	times := stats.Interval{Low: 1 / r.Interval.High, High: 1 / r.Interval.Low, Coverage: r.Interval.Coverage}
	return paired.Verdict(times)
}

// peak returns the largest resident set of any rank according to the kernel (getrusage(2), ru_maxrss), in MiB.
func peak(commands []*exec.Cmd) float64 {
	most := int64(0)
	for _, cmd := range commands {
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			most = max(most, usage.Maxrss) // KiB, on Linux
		}
	}
	return float64(most) / 1024
}
