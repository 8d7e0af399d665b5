package trainer

import (
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// BenchmarkSave saves after every step of an MLP with Adam, whose state is 23 MB. It gives how long training stands still for that beside a
// step, and what a durable checkpoint takes.
func BenchmarkSave(b *testing.B) {
	for name, async := range map[string]bool{"background": true, "waiting": false} {
		b.Run(name, func(b *testing.B) {
			cfg := benchmarkConfig(b, "mlp")
			cfg.Model.Hidden, cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.Optimizer.Momentum = []int{1024, 1024}, "adam", 1e-4, 0
			dir, err := checkpoint.Open(b.TempDir(), checkpoint.Options{Attempt: 1, Keep: checkpoint.Policy{Last: 2}})
			if err != nil {
				b.Fatal(err)
			}
			tr := newTrainer(cfg, Env{Comm: mpi.Self(), Checkpoints: dir, Async: async})
			if err := tr.setUp(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer tr.close()
			tr.beginEpoch()
			var steps, durable time.Duration
			for b.Loop() {
				if tr.stepsLeft() == 0 {
					tr.at = tr.at.nextEpoch()
					tr.beginEpoch()
				}
				start := time.Now()
				if err := tr.step(b.Context()); err != nil {
					b.Fatal(err)
				}
				steps += time.Since(start)
				if err := tr.save(b.Context(), false); err != nil {
					b.Fatal(err)
				}
				if err := tr.finishSave(b.Context()); err != nil {
					b.Fatal(err)
				}
				durable += tr.saver.Stats().Total.Last
			}
			per := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(per(steps), "ms/step")
			b.ReportMetric(per(tr.cost.stall), "ms/stall")
			b.ReportMetric(per(durable), "ms/durable")
			b.ReportMetric(float64(tr.saver.Stats().Raw)/1e6, "MB")
		})
	}
}
