package optim

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever the settings: rates lie between the least and lr, rise while warming up, fall or stay in cosine, linear
// and step, rise once and fall once in one_cycle, and stay as they are after the end.
func TestShapeOfSchedules(t *testing.T) {
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
		const rounding = 1e-15 // of sums of a few numbers up to lr
		fallen := false        // of one_cycle: past its top
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
			if a, b := schedule.LR(cfg.Steps), schedule.LR(1<<62); a != b || a > last {
				t.Fatalf("%+v: after the end %v, then %v", cfg, a, b)
			}
		}
	})
}
