package optim

import (
	"math"
	"testing"

	"ddpbatch/trainer/nn"
)

func TestStepsAllocateNothing(t *testing.T) {
	scaler := NewLossScaler()
	schedule := mustSchedule(t, ScheduleConfig{Kind: "one_cycle", Steps: 1000, WarmupSteps: 3}, 0.1)
	for _, cfg := range everyKind() {
		p, q := param("w", make([]float32, 100)...), param("b", make([]float32, 7)...)
		params := []*nn.Param{p, q}
		opt := mustNew(t, cfg, params...)
		step := int64(0)
		if n := testing.AllocsPerRun(100, func() {
			for _, p := range params {
				for i := range p.Grad {
					p.Grad[i] = 1
				}
			}
			scaler.Update(scaler.Unscale(params))
			ClipGradNorm(params, 0.1, math.Sqrt(SquaredNorm(params)))
			opt.SetLR(schedule.LR(step))
			opt.Step()
			_ = opt.State()
			step++
		}); n != 0 {
			t.Errorf("%+v: %v allocations a step", cfg, n)
		}
	}
}
