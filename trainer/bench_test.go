package trainer

import (
	"testing"

	"ddpbatch/mpi"
)

// stepping is a trainer of one rank that stands before its first step.
func stepping(t testing.TB, cfg Config) *trainer {
	t.Helper()
	tr := newTrainer(cfg, Env{Comm: mpi.Self()})
	if err := tr.setUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	tr.beginEpoch()
	return tr
}

// dense is one layer from 20 to 1, on 4,096 generated rows in batches of 32.
func dense() Config {
	cfg := DefaultConfig()
	cfg.BatchSize, cfg.Loss = 32, "mse"
	cfg.Model.Kind, cfg.Data.Kind = "dense", "generated"
	return cfg
}

func TestAStepAllocatesNothing(t *testing.T) { // without the race detector
	tr := stepping(t, dense())
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := tr.step(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a step allocates %v times, want none", n)
	}
}

func benchmarkStep(b *testing.B, cfg Config) {
	tr := stepping(b, cfg)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if tr.stepsLeft() == 0 {
			tr.at = tr.at.nextEpoch()
			tr.beginEpoch()
		}
		if err := tr.step(ctx); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*cfg.BatchSize)/b.Elapsed().Seconds(), "samples/s")
}

func BenchmarkStepDense(b *testing.B) { benchmarkStep(b, dense()) }

func BenchmarkStepMLP(b *testing.B) {
	cfg := mnist(b)
	cfg.Optimizer.Momentum = 0.9
	benchmarkStep(b, cfg)
}
