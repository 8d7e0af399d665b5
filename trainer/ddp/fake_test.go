package ddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// fakeModel has parameters of the given lengths, named "p0", "p1", ..., and a Backward that a test writes itself.
func fakeModel(lengths ...int) []*nn.Param {
	params := make([]*nn.Param, len(lengths))
	for i, n := range lengths {
		params[i] = &nn.Param{Name: fmt.Sprint("p", i), Shape: []int{n}, Value: make([]float32, n), Grad: make([]float32, n)}
	}
	return params
}

// backward adds to the gradients of params as a Backward does, one after another, what localGradient says.
func backward(pass *nn.Pass, params []*nn.Param, rank, step int) {
	for _, p := range params {
		for i, g := range localGradient(p, rank, step) {
			p.Grad[i] += g
		}
		pass.Done(p)
	}
}

// localGradient is a rank's own gradient: numbers of any size, for which the order of a sum matters.
func localGradient(p *nn.Param, rank, step int) []float32 {
	seed := uint64(step)
	for _, c := range p.Name {
		seed = seed*31 + uint64(c)
	}
	r := rand.New(rand.NewPCG(seed, uint64(rank)))
	g := make([]float32, len(p.Value))
	for i := range g {
		g[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(20))))
	}
	return g
}

// meanGradient is the mean over ranks by PyTorch's rule, each term times the rounded 1/world, and mpi's: neighbours are added, then
// neighbouring sums, and so on.
func meanGradient(p *nn.Param, world, step int) []float32 {
	terms := make([][]float32, world)
	for rank := range terms {
		terms[rank] = localGradient(p, rank, step)
		for i := range terms[rank] {
			terms[rank][i] *= 1 / float32(world)
		}
	}
	for len(terms) > 1 {
		var sums [][]float32
		for i := 0; i+1 < len(terms); i += 2 {
			for j, x := range terms[i+1] {
				terms[i][j] += x
			}
			sums = append(sums, terms[i])
		}
		if len(terms)%2 == 1 {
			sums = append(sums, terms[len(terms)-1])
		}
		terms = sums
	}
	return terms[0]
}

// expect compares gradients bit by bit.
func expect(p *nn.Param, want []float32) error {
	for i, g := range p.Grad {
		if math.Float32bits(g) != math.Float32bits(want[i]) {
			return fmt.Errorf("gradient %d of %s is %v, want %v", i, p.Name, g, want[i])
		}
	}
	return nil
}

// fakeHook is a Hook that a test writes itself.
type fakeHook struct {
	bind   func(buckets []*Bucket) error
	reduce func(ctx context.Context, comm *mpi.Comm, b *Bucket) error
}

func (h fakeHook) Bind(_ context.Context, _ *mpi.Comm, buckets []*Bucket) error {
	if h.bind == nil {
		return nil
	}
	return h.bind(buckets)
}

func (h fakeHook) Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
	return h.reduce(ctx, comm, b)
}
func (h fakeHook) State() []State { return nil }
