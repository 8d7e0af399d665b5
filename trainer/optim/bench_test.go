package optim

import "testing"

func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"sgd", Config{Kind: "sgd", LR: 0.1}},
		{"sgd-momentum", Config{Kind: "sgd", LR: 0.1, Momentum: 0.9}},
		{"adam", Default("adam")},
		{"adamw", Default("adamw")},
		{"lamb", Default("lamb")},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := param("w", make([]float32, 784*512)...)
			for i := range p.Grad {
				p.Value[i], p.Grad[i] = float32(i%17)/16, float32(i%13)/12
			}
			opt := mustNew(b, c.cfg, p)
			b.SetBytes(int64(4 * len(p.Value)))
			b.ReportAllocs()
			for b.Loop() {
				opt.Step()
			}
		})
	}
}
