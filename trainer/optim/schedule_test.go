package optim

import (
	_ "embed"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit/torch"
)

//go:embed testdata/schedules.py
var schedulesScript string

func mustSchedule(t *testing.T, cfg ScheduleConfig, lr float64) Schedule {
	t.Helper()
	s, err := NewSchedule(cfg, lr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// scheduleTolerance allows for PyTorch's way to compute each rate from the one before, in float64, so that a hundred
// roundings of 1.1e-16 add up. Near the end of a cosine each rounding is more than a hundred times larger, relative to
// the remaining lr - MinLR.
const scheduleTolerance = 1e-12

func TestSchedulesEqualPyTorchs(t *testing.T) {
	t.Parallel()
	type torchSchedule struct {
		cfg   ScheduleConfig
		Class string
		Args  map[string]any
	}
	const lr, steps = 0.3, 100
	cases := []torchSchedule{
		{ScheduleConfig{Kind: "step", StepSize: 7, Gamma: 0.9}, "StepLR", map[string]any{"step_size": 7, "gamma": 0.9}},
		{ScheduleConfig{Kind: "step", StepSize: 30, Gamma: 0.1}, "StepLR", map[string]any{"step_size": 30}},
		{ScheduleConfig{Kind: "cosine", Steps: steps}, "CosineAnnealingLR", map[string]any{"T_max": steps}},
		{ScheduleConfig{Kind: "cosine", Steps: steps, MinLR: 0.01}, "CosineAnnealingLR",
			map[string]any{"T_max": steps, "eta_min": 0.01}},
		{ScheduleConfig{Kind: "one_cycle", Steps: steps}, "OneCycleLR", map[string]any{"max_lr": lr, "total_steps": steps}},
		{ScheduleConfig{Kind: "linear", Steps: steps}, "LinearLR",
			map[string]any{"start_factor": 1, "end_factor": 0, "total_iters": steps}},
		{ScheduleConfig{Kind: "linear", Steps: steps, MinLR: 0.03}, "LinearLR",
			map[string]any{"start_factor": 1, "end_factor": 0.1, "total_iters": steps}},
		// A warm-up as long as the run is the same as a rising LinearLR.
		{ScheduleConfig{WarmupSteps: steps}, "LinearLR", map[string]any{"start_factor": 1.0 / steps, "total_iters": steps - 1}},
	}
	for _, short := range []int64{1, 2, 3, 4, 10, 33} { // the top of a cycle before, at and between steps
		cases = append(cases, torchSchedule{ScheduleConfig{Kind: "one_cycle", Steps: short}, "OneCycleLR",
			map[string]any{"max_lr": lr, "total_steps": short}})
	}
	spec, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	var want [][]float64
	if err := json.Unmarshal([]byte(torch.Run(t, schedulesScript, string(spec))), &want); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		rates := want[i]
		if n := c.cfg.Steps; n > 0 && len(rates) != int(n) || n == 0 && len(rates) != steps {
			t.Fatalf("%+v: PyTorch gave %d rates", c.cfg, len(rates))
		}
		schedule := mustSchedule(t, c.cfg, lr)
		for step, rate := range rates {
			if got := schedule.LR(int64(step)); !(math.Abs(got-rate) <= scheduleTolerance*rate) {
				t.Errorf("%+v: step %d: %v, PyTorch has %v", c.cfg, step, got, rate)
			}
		}
		if c.cfg.WarmupSteps > 0 {
			continue
		}
		// With a warm-up the same rates follow it.
		warm := c.cfg
		warm.WarmupSteps = 5
		if warm.Steps > 0 {
			warm.Steps += 5
		}
		later := mustSchedule(t, warm, lr)
		for step := range int64(len(rates)) {
			if got, want := later.LR(step+5), schedule.LR(step); got != want {
				t.Errorf("%+v: step %d: %v, without warm-up %v", warm, step, got, want)
			}
		}
		for step := range int64(5) {
			if got, want := later.LR(step), schedule.LR(0)*float64(step+1)/5; math.Abs(got-want) > 1e-16 {
				t.Errorf("%+v: step %d: %v, want %v", warm, step, got, want)
			}
		}
	}
}

// Schedules begin and end with the rates computed by hand.
func TestSchedulesBeginAndEndAsByHand(t *testing.T) {
	for _, c := range []struct {
		cfg  ScheduleConfig
		step int64
		want float64
	}{
		{ScheduleConfig{}, 0, 1},
		{ScheduleConfig{Kind: "constant"}, 1e15, 1},
		{ScheduleConfig{WarmupSteps: 4}, 0, 0.25},
		{ScheduleConfig{WarmupSteps: 4}, 3, 1},
		{ScheduleConfig{WarmupSteps: 4}, 4, 1},
		{ScheduleConfig{WarmupSteps: 1}, 0, 1},
		{ScheduleConfig{Kind: "step", StepSize: 10, Gamma: 0.5, WarmupSteps: 3}, 12, 1},
		{ScheduleConfig{Kind: "step", StepSize: 10, Gamma: 0.5, WarmupSteps: 3}, 13, 0.5},
		{ScheduleConfig{Kind: "cosine", Steps: 10}, 5, 0.5},
		{ScheduleConfig{Kind: "cosine", Steps: 10, MinLR: 0.25}, 10, 0.25},
		{ScheduleConfig{Kind: "cosine", Steps: 10, MinLR: 0.25}, 15, 0.25},
		{ScheduleConfig{Kind: "linear", Steps: 10, MinLR: 0.5}, 5, 0.75},
		{ScheduleConfig{Kind: "linear", Steps: 10, MinLR: 0.5}, 1000, 0.5},
		{ScheduleConfig{Kind: "one_cycle", Steps: 10}, 0, 0.04},
		{ScheduleConfig{Kind: "one_cycle", Steps: 10}, 2, 1},
		{ScheduleConfig{Kind: "one_cycle", Steps: 10}, 9, 4e-6},
		{ScheduleConfig{Kind: "one_cycle", Steps: 10}, 500, 4e-6},
		{ScheduleConfig{Kind: "one_cycle", Steps: 12, WarmupSteps: 2}, 0, 0.02},
		{ScheduleConfig{Kind: "one_cycle", Steps: 12, WarmupSteps: 2}, 4, 1},
	} {
		// The tolerance is for sums and products of a few float64 numbers near 1.
		if got := mustSchedule(t, c.cfg, 1).LR(c.step); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%+v: step %d has %v, want %v", c.cfg, c.step, got, c.want)
		}
	}
}

func TestBadSchedulesNameTheirKey(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		key string
		cfg ScheduleConfig
		lr  float64
	}{
		{"kind", ScheduleConfig{Kind: "onecycle"}, 1},
		{"lr", ScheduleConfig{}, 0},
		{"lr", ScheduleConfig{}, nan},
		{"lr", ScheduleConfig{}, inf},
		{"warmup_steps", ScheduleConfig{WarmupSteps: -1}, 1},
		{"warmup_steps", ScheduleConfig{Kind: "cosine", Steps: 10, WarmupSteps: 10}, 1},
		{"steps", ScheduleConfig{Kind: "linear"}, 1},
		{"warmup_steps", ScheduleConfig{Kind: "linear", Steps: 1, WarmupSteps: 1}, 1},
		{"warmup_steps", ScheduleConfig{Kind: "one_cycle", Steps: 10, WarmupSteps: 11}, 1},
		{"step_size", ScheduleConfig{Kind: "step"}, 1},
		{"step_size", ScheduleConfig{Kind: "step", StepSize: -3}, 1},
		{"step_size", ScheduleConfig{Kind: "cosine", Steps: 10, StepSize: 3}, 1},
		{"gamma", ScheduleConfig{Kind: "step", StepSize: 3}, 1},
		{"gamma", ScheduleConfig{Kind: "step", StepSize: 3, Gamma: -1}, 1},
		{"gamma", ScheduleConfig{Kind: "step", StepSize: 3, Gamma: nan}, 1},
		{"gamma", ScheduleConfig{Kind: "step", StepSize: 3, Gamma: inf}, 1},
		{"gamma", ScheduleConfig{Gamma: 0.1}, 1},
		{"min_lr", ScheduleConfig{Kind: "cosine", Steps: 10, MinLR: -1}, 1},
		{"min_lr", ScheduleConfig{Kind: "cosine", Steps: 10, MinLR: nan}, 1},
		{"min_lr", ScheduleConfig{Kind: "linear", Steps: 10, MinLR: 2}, 1},
		{"min_lr", ScheduleConfig{Kind: "one_cycle", Steps: 10, MinLR: 0.1}, 1},
	} {
		if _, err := NewSchedule(c.cfg, c.lr); err == nil || !strings.HasPrefix(err.Error(), c.key+": ") {
			t.Errorf("%+v, lr %v: error %v, want one that begins with %q", c.cfg, c.lr, err, c.key)
		}
	}
}

// With any settings, rates lie between the least rate and lr, rise during the warm-up, and stay constant after the end.
// In cosine, linear and step they never rise after the warm-up. In one_cycle they rise once and fall once.
func TestSchedulesRiseAndFallAsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := ScheduleConfig{
			Kind:        rapid.SampledFrom([]string{"constant", "step", "cosine", "linear", "one_cycle"}).Draw(t, "kind"),
			WarmupSteps: rapid.Int64Range(0, 50).Draw(t, "warmup"),
		}
		lr := rapid.Float64Range(1e-6, 10).Draw(t, "lr")
		cfg.Steps = cfg.WarmupSteps + rapid.Int64Range(1, 200).Draw(t, "steps")
		switch cfg.Kind {
		case "step":
			cfg.StepSize = rapid.Int64Range(1, 100).Draw(t, "size")
			cfg.Gamma = rapid.Float64Range(0.01, 1).Draw(t, "gamma")
		case "cosine", "linear":
			cfg.MinLR = lr * rapid.Float64Range(0, 1).Draw(t, "least")
		}
		schedule, err := NewSchedule(cfg, lr)
		if err != nil {
			t.Fatal(err)
		}
		const rounding = 1e-15 // the rounding error of sums of a few numbers up to lr
		fallen := false        // whether one_cycle is past its top
		last := 0.0
		for step := range cfg.Steps {
			rate := schedule.LR(step)
			if rate > lr*(1+rounding) || rate < cfg.MinLR-lr*rounding && step >= cfg.WarmupSteps || rate < 0 {
				t.Fatalf("%+v: step %d has %v, outside of [%v, %v]", cfg, step, rate, cfg.MinLR, lr)
			}
			var wrong bool
			switch {
			case step < cfg.WarmupSteps:
				wrong = rate < last
			case cfg.Kind == "one_cycle" && !fallen:
				fallen = rate < last
			default:
				wrong = rate > last+lr*rounding && step > 0
			}
			if wrong {
				t.Fatalf("%+v: step %d has %v after %v", cfg, step, rate, last)
			}
			last = rate
		}
		if cfg.Kind != "step" && cfg.Kind != "constant" {
			if a, b := schedule.LR(cfg.Steps), schedule.LR(1<<62); a != b || a > last+lr*rounding {
				t.Fatalf("%+v: after the end %v, then %v", cfg, a, b)
			}
		}
	})
}
