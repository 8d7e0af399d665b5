package optim

import (
	"errors"
	"fmt"
	"math"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/text"
)

// Schedule returns the learning rate of every step of a run.
type Schedule interface {
	// LR returns the learning rate of a step, counted from 0. It depends on nothing else, so a resumed run
	// has the same rates as one that never stopped. Steps after the last have the rate that the schedule ends
	// with.
	LR(step int64) float64
}

// ScheduleConfig selects a schedule. Fields that a kind does not use must be zero; the zero value keeps the learning rate
// constant.
//
// With w = WarmupSteps > 0, step t < w has the rate first (t + 1) / w, where first is the rate that the schedule
// itself begins with: the learning rate, and for one_cycle a 25th of it. That is torch.optim.lr_scheduler.LinearLR
// with start_factor 1/w over w - 1 steps. The schedule then begins at step w, as its step s = 0, and has the remaining n = Steps
// - w steps:
//
//	constant   lr
//	step       lr Gamma^floor(s / StepSize)                        StepLR
//	cosine     MinLR + (lr - MinLR) (1 + cos(pi s / n)) / 2        CosineAnnealingLR, T_max n
//	linear     lr + (MinLR - lr) s / n                             LinearLR, start_factor 1, total_iters n
//	one_cycle  a cosine from lr/25 up to lr at s = 0.3 n - 1, then another
//	           down to lr/250000 at s = n - 1                      OneCycleLR with its defaults
//
// cosine and linear would reach MinLR at step n, the first step after the end, so that no step is taken at a rate of
// 0.
type ScheduleConfig struct {
	Kind        string  // "constant" or "" | "step" | "cosine" | "one_cycle" | "linear"
	WarmupSteps int64   // 0: none
	Steps       int64   // of the whole run, including the warm-up; constant and step ignore it
	StepSize    int64   // for step: how many steps have the same rate
	Gamma       float64 // for step: above 0; the factor between rates
	MinLR       float64 // for cosine and linear: in [0, lr]
}

// NewSchedule returns the schedule of a run with the learning rate lr. It uses Go's math.Cos and
// math.Pow, whose last bit may differ between processor architectures (amd64, arm64). An error is that of
// ScheduleConfig.Validate, or about lr.
func NewSchedule(cfg ScheduleConfig, lr float64) (Schedule, error) {
	if !(lr > 0) || math.IsInf(lr, 0) {
		return nil, fmt.Errorf("lr: is %v, want a number above 0", lr)
	}
	if err := cfg.Validate(lr); err != nil {
		return nil, err
	}
	main := cfg.main(lr)
	if cfg.WarmupSteps == 0 {
		return main, nil
	}
	return rates(func(step int64) float64 {
		if warm := cfg.WarmupSteps; step < warm { // a linear rise to the first rate of the schedule that follows
			return main(0) * (float64(step+1) / float64(warm))
		}
		return main(step - cfg.WarmupSteps)
	}), nil
}

// rates is a function that implements Schedule.
type rates func(step int64) float64

func (r rates) LR(step int64) float64 { return r(step) }

func (c *ScheduleConfig) main(lr float64) rates {
	steps := c.Steps - c.WarmupSteps
	progress := func(step int64) float64 { return float64(min(step, steps)) / float64(steps) }
	switch c.Kind {
	case "step":
		return func(step int64) float64 { return lr * math.Pow(c.Gamma, float64(step/c.StepSize)) }
	case "cosine":
		return func(step int64) float64 { return anneal(lr, c.MinLR, progress(step)) }
	case "linear":
		return func(step int64) float64 {
			part := progress(step)
			return float64(lr*(1-part)) + float64(c.MinLR*part)
		}
	case "one_cycle":
		return oneCycle(lr, steps)
	}
	return func(int64) float64 { return lr }
}

// Validate returns every fault of c for a run with the learning rate lr, joined. Each begins with the name of the setting in a job
// file.
func (c ScheduleConfig) Validate(lr float64) error {
	var f faults
	var bounded, steps, least bool // whether the kind depends on Steps, uses StepSize and Gamma, and uses MinLR
	switch c.Kind {
	case "", "constant":
	case "step":
		steps = true
	case "cosine", "linear":
		bounded, least = true, true
	case "one_cycle":
		bounded = true
	default:
		return fmt.Errorf("kind: %s is not a schedule, want %s",
			redact.Quoted(c.Kind, redact.Shown), text.Choice([]string{"constant", "step", "cosine", "one_cycle", "linear"}))
	}
	switch {
	case c.WarmupSteps < 0:
		f.add("warmup_steps: is %d, want 0 or more", c.WarmupSteps)
	case bounded && c.Steps < 1:
		f.add("steps: the run has %d, want at least 1", c.Steps)
	case bounded && c.Steps <= c.WarmupSteps:
		f.add("warmup_steps: %d leave none of the run's %d steps for the %s schedule: lower them, or train longer",
			c.WarmupSteps, c.Steps, c.Kind)
	}
	if steps {
		f.unless(c.StepSize >= 1, "step_size: is %d, want the number of steps that have the same rate, at least 1", c.StepSize)
		f.unless(c.Gamma > 0 && !math.IsInf(c.Gamma, 0), "gamma: is %v, want a number above 0, such as 0.1", c.Gamma)
	} else {
		f.unless(c.StepSize == 0, "step_size: only the step schedule has one: leave it out")
		f.unless(c.Gamma == 0, "gamma: only the step schedule has one: leave it out")
	}
	if least {
		f.unless(c.MinLR >= 0 && c.MinLR <= max(0, lr), "min_lr: is %v, want a number from 0 to the learning rate, %v", c.MinLR, lr)
	} else {
		f.unless(c.MinLR == 0, "min_lr: only the cosine and linear schedules have one: leave it out")
	}
	return errors.Join(f...)
}

// OneCycleLR's pct_start, div_factor and final_div_factor.
const (
	cycleRise  = 0.3
	cycleStart = 25
	cycleEnd   = 1e4
)

// oneCycle returns the schedule of OneCycleLR. Like that it reaches the top between two steps if 0.3 n is not a whole number.
func oneCycle(lr float64, steps int64) rates {
	first, last := lr/cycleStart, float64(steps-1)
	top := float64(cycleRise*float64(steps)) - 1
	return func(step int64) float64 {
		at := min(float64(step), last)
		if at <= top {
			return anneal(first, lr, at/top)
		}
		return anneal(lr, first/cycleEnd, (at-top)/(last-top))
	}
}

// anneal goes from one rate to another along half a cosine, as part goes from 0 to 1. The explicit conversion prevents the
// compiler from fusing operations: see the package's documentation.
func anneal(from, to, part float64) float64 {
	return to + float64((from-to)/2*(math.Cos(math.Pi*part)+1))
}
