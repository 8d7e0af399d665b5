package ddp

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"ddpbatch/trainer/internal/vec"
)

// lowRank approximates one gradient, a matrix M of rows x cols, by P transposed(Q) with few columns. P and Q are kept as
// rows of their columns: rank x rows and rank x cols.
type lowRank struct {
	name             string
	rows, cols, rank int
	seed             uint64
	m, left          []float32 // the gradient, and its residual
	p, q             []float32 // in the buffers that are all-reduced
	warm             []float32 // the last Q, to begin the next step with: the same on all ranks
}

// fresh writes a random column of Q, the same on all ranks.
func (f *lowRank) fresh(k int, dst []float32) {
	h := fnv.New64a()
	h.Write([]byte(f.name))
	src := rand.New(rand.NewPCG(f.seed, h.Sum64()+uint64(k)))
	for i := range dst {
		dst[i] = float32(src.NormFloat64())
	}
}

// computeP is P = M Q, scaled, with Q made orthonormal.
func (f *lowRank) computeP(scale float32) {
	copy(f.q, f.warm)
	orthonormalize(f.q, f.cols, f.fresh)
	for i := range f.rows {
		row := f.m[i*f.cols:][:f.cols]
		for k := range f.rank {
			f.p[k*f.rows+i] = scale * float32(vec.Dot(row, f.q[k*f.cols:][:f.cols]))
		}
	}
}

// computeQ is Q = transposed(M) P, scaled, with P made orthonormal, which is the sum of all ranks'.
func (f *lowRank) computeQ(scale float32) {
	orthonormalize(f.p, f.rows, nil)
	clear(f.q)
	for i := range f.rows {
		row := f.m[i*f.cols:][:f.cols]
		for k := range f.rank {
			vec.Axpy(f.q[k*f.cols:][:f.cols], f.p[k*f.rows+i], row)
		}
	}
	vec.Scale(f.q, scale)
}

// finish replaces M by P transposed(Q), with the same bits on all ranks, and keeps what that leaves out. What
// is not finite becomes NaN all over, and what is kept stays as it was.
func (f *lowRank) finish() {
	if !vec.Finite(f.q) {
		for i := range f.m {
			f.m[i] = float32(math.NaN())
		}
		return
	}
	copy(f.warm, f.q)
	copy(f.left, f.m)
	clear(f.m)
	for i := range f.rows {
		row := f.m[i*f.cols:][:f.cols]
		for k := range f.rank {
			vec.Axpy(row, f.p[k*f.rows+i], f.q[k*f.cols:][:f.cols])
		}
	}
	vec.Axpy(f.left, -1, f.m)
}
