package main

import (
	"fmt"
	"math"
	"slices"

	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// Indices of the sides: ours and PyTorch's.
const (
	own = iota
	peer
)

// row is what was measured in one setting.
type row struct {
	Model      string           `json:"model"`
	Ranks      int              `json:"ranks"`
	StepMS     [2]stats.Samples `json:"step_ms"` // of ddpbatch, of PyTorch; by turn
	PeakMiB    [2]stats.Samples `json:"peak_mib"`
	Loss       [2]stats.Samples `json:"loss"`
	Parameters [2]int           `json:"parameters"`
	BLAS       string           `json:"blas"`    // what computes PyTorch's products
	Exposed    stats.Samples    `json:"exposed"` // of ddpbatch
	Outside    stats.Number     `json:"outside"` // likewise: share of a step outside of matrix products; NaN: not measured
	Speed      stats.Number     `json:"speed"`   // samples/s, ours / theirs
	Interval   stats.Interval   `json:"interval"`
	Memory     stats.Number     `json:"memory"`    // ours / theirs
	Different  bool             `json:"different"` // losses say that the sides do not train the same
	Faults     []string         `json:"faults"`

	setting setting
}

func newRow(s setting, launches int) row {
	r := row{Model: s.name, Ranks: s.ranks, Outside: stats.Number(math.NaN()), Faults: []string{}, setting: s}
	for _, of := range []*stats.Samples{&r.StepMS[own], &r.StepMS[peer], &r.PeakMiB[own], &r.PeakMiB[peer], &r.Loss[own], &r.Loss[peer], &r.Exposed} {
		*of = slices.Repeat(stats.Samples{math.NaN()}, launches)
	}
	return r
}

// add takes in what came of a side's launch. What a launch did not give is missing, and is shown so.
func (r *row) add(turn, side int, name string, got result, err error) {
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

// lossApart is how far losses may be from each other, as a share: the GPT's initial values are different ones of the same distribution.
const lossApart = 0.05

// compare holds the sides against each other, launch by launch.
func (r *row) compare() {
	var speed, memory stats.Samples
	for turn := range r.StepMS[own] {
		speed = append(speed, r.StepMS[peer][turn]/r.StepMS[own][turn])
		memory = append(memory, r.PeakMiB[own][turn]/r.PeakMiB[peer][turn])
	}
	if ours, theirs := r.Loss[own].Median(), r.Loss[peer].Median(); math.Abs(ours-theirs) > lossApart*theirs {
		r.Different = true
		r.Faults = append(r.Faults, fmt.Sprintf("%v: a loss of %.4f and one of %.4f: the sides do not train the same", r.setting, ours, theirs))
	}
	r.Speed, r.Interval, r.Memory = stats.Number(speed.Median()), speed.Interval(), stats.Number(memory.Median())
}

// samplesPerS is the median over a side's launches, of all ranks together.
func (r *row) samplesPerS(side int) float64 {
	return 1000 * float64(r.setting.batch*r.Ranks) / r.StepMS[side].Median()
}

// verdict is win, even, lose, or "-" where PyTorch has fewer than two launches.
func (r *row) verdict() string {
	if r.Different || slices.ContainsFunc(r.StepMS[own], math.IsNaN) { // the row is lost, whatever the rest of it says
		return "lose"
	}
	times := stats.Interval{Low: 1 / r.Interval.High, High: 1 / r.Interval.Low, Coverage: r.Interval.Coverage} // Speed's is of their inverse
	return report.Verdict(times)
}
