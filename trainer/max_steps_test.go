package trainer

import "testing"

// TestMaxSteps: a run that max_steps ends, in the middle of an epoch or at its end, has as many steps, and goes on from there, with more of
// them, to the very bytes of a run that it never ended. Ranks that step alone average first.
func TestMaxSteps(t *testing.T) {
	const size, epochs, perEpoch = 2, 3, 4
	for name, change := range map[string]func(*Config){
		"ddp":       func(*Config) {},
		"local SGD": func(cfg *Config) { cfg.DDP.AverageEvery = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small(size, epochs, perEpoch)
			change(&cfg)
			for _, steps := range []int{1, 3, 4, 7, 8, 12, 99} {
				straight, c := newCheckpoints(), newCheckpoints()
				open := func(c checkpoints, most int) func(int, *Config, *Env) {
					return func(_ int, cfg *Config, env *Env) {
						cfg.MaxSteps = most
						env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
					}
				}
				cut := mustTrain(t, size, cfg, open(c, steps))[0].Result
				if want := int64(min(steps, epochs*perEpoch)); cut.Steps != want || cut.Stopped || cut.Early || c.latest(t).Step != want {
					t.Fatalf("max_steps %d: %+v, and the newest checkpoint is of step %d", steps, cut, c.latest(t).Step)
				}
				if again := mustTrain(t, size, cfg, open(c, steps))[0].Result; again.Steps != cut.Steps {
					t.Errorf("max_steps %d: resumed, it is at step %d", steps, again.Steps)
				}
				mustTrain(t, size, cfg, open(c, 0))
				if name != "ddp" { // an average more than the straight run has
					continue
				}
				mustTrain(t, size, cfg, open(straight, 0))
				sameState(t, c.latest(t), straight.latest(t))
			}
		})
	}
}
