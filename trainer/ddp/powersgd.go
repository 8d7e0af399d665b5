package ddp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// PowerSGDConfig configures NewPowerSGDHook. The comments give the names and defaults of PyTorch's PowerSGDState.
type PowerSGDConfig struct {
	// Rank is the rank of the approximation, at least 1 (matrix_approximation_rank, 1).
	Rank int
	// Start is the number of uncompressed steps before it, up to MaxStart (start_powerSGD_iter, 1000): the first steps suffer most from
	// compression.
	Start int
	// MinRate is the factor by which a gradient must shrink to be compressed, above 0 (min_compression_rate, 2).
	MinRate float64
	// Seed determines the first Q. It must be the same on all ranks.
	Seed uint64
}

// MaxStart is the largest Start: checkpoints keep the count in a float32, which is exact up to this number.
const MaxStart = 1 << 24

// powerSGD is the Hook of NewPowerSGDHook.
type powerSGD struct {
	feedback
	cfg    PowerSGDConfig
	plans  []powerPlan // by bucket
	states []State     // the count of steps and every matrix's last Q, by name
	steps  []float32   // one element: the number of steps, up to Start
	first  scratch[float32]
	second scratch[float32]
}

// NewPowerSGDHook returns a Hook that approximates the mean of gradients that are matrices by a matrix of low rank (arXiv 1905.13727;
// PyTorch's powerSGD_hook). With M the sum of the gradient and its residual on a rank, n x m, and Q the result of the previous step, it
// computes
//
//	P = mean(M Q), P = orthonormal(P), Q = mean(transposed(M) P), mean of M = P transposed(Q)
//
// and sends (n + m) x Rank numbers instead of n x m. What the approximation leaves out of a rank's M is added to
// its next gradient. The weights of a convolution count as a matrix with a row for each output channel. Vectors, and
// matrices that would not shrink by MinRate, are averaged without compression.
//
// A gradient with an Inf or a NaN on any rank becomes NaN on every rank, and leaves residual and Q unchanged. If a step is
// skipped, or its loss is scaled differently, the residuals are not adjusted.
func NewPowerSGDHook(cfg PowerSGDConfig) (Hook, error) {
	var wrong []error
	if cfg.Rank < 1 {
		wrong = append(wrong, fmt.Errorf("PowerSGD: the rank of the approximation is %d, want at least 1", cfg.Rank))
	}
	if cfg.Start < 0 || cfg.Start > MaxStart {
		wrong = append(wrong, fmt.Errorf("PowerSGD: the first step is %d, want 0 to %d", cfg.Start, MaxStart))
	}
	if !(cfg.MinRate > 0) {
		wrong = append(wrong, fmt.Errorf("PowerSGD: the least compression rate is %v, want a number above 0", cfg.MinRate))
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	return &powerSGD{cfg: cfg, steps: make([]float32, 1)}, nil
}

// matrix returns how p's gradient is approximated. pays is false if it would not shrink enough.
func (h *powerSGD) matrix(p *nn.Param) (f lowRank, pays bool) {
	if len(p.Shape) < 2 || len(p.Grad) == 0 {
		return lowRank{}, false
	}
	f = lowRank{name: p.Name, rows: p.Shape[0], cols: len(p.Grad) / p.Shape[0], seed: h.cfg.Seed}
	f.rank = min(f.rows, f.cols, h.cfg.Rank)
	return f, float64((f.rows+f.cols)*f.rank)*h.cfg.MinRate < float64(f.rows)*float64(f.cols)
}

// Bind implements Hook.
func (h *powerSGD) Bind(ctx context.Context, comm *mpi.Comm, buckets []*Bucket) error {
	before := h.states
	h.plans, h.states = make([]powerPlan, len(buckets)), []State{{Name: "powersgd.steps", Shape: []int{}, Value: h.steps, Whole: true}}
	groups := make([][]*nn.Param, len(buckets))
	longestP, longestQ := 0, 0
	for i, b := range buckets {
		plan := &h.plans[i]
		sizeP, sizeQ, rest := 0, 0, b.Data
		for _, p := range b.Params {
			var data []float32
			data, rest = rest[:len(p.Grad):len(p.Grad)], rest[len(p.Grad):]
			f, pays := h.matrix(p)
			if !pays {
				plan.plain = append(plan.plain, data)
				sizeP += len(data)
				continue
			}
			f.m, f.warm = data, h.warm(before, f)
			h.states = append(h.states, State{Name: "powersgd.q." + p.Name, Shape: []int{f.rank, f.cols}, Value: f.warm})
			plan.matrices = append(plan.matrices, f)
			groups[i] = append(groups[i], p)
			sizeP, sizeQ = sizeP+f.rank*f.rows, sizeQ+f.rank*f.cols
		}
		longestP, longestQ = max(longestP, sizeP), max(longestQ, sizeQ)
	}
	slices.SortFunc(h.states, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
	h.bind(groups)
	if err := errors.Join(h.first.grow(ctx, comm, longestP), h.second.grow(ctx, comm, longestQ)); err != nil {
		return err
	}
	for i := range h.plans {
		h.plans[i].assignBuffers(h.first.data, h.second.data, h.left[i])
	}
	return nil
}

// warm returns the last Q of a matrix, or the first one.
func (h *powerSGD) warm(before []State, f lowRank) []float32 {
	for _, s := range before {
		if s.Name == "powersgd.q."+f.name {
			return s.Value
		}
	}
	q := make([]float32, f.rank*f.cols)
	for k := range f.rank {
		f.fresh(k, q[k*f.cols:][:f.cols])
	}
	return q
}

// Reduce implements Hook.
func (h *powerSGD) Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
	plan, share := &h.plans[b.Index], 1/float32(comm.Size())
	compress := h.steps[0] >= float32(h.cfg.Start)
	if !compress && b.Index == len(h.plans)-1 {
		h.steps[0]++ // this is the last bucket of the step
	}
	if !compress || len(plan.matrices) == 0 {
		vec.Scale(b.Data, share)
		if err := mpi.AllReduce(ctx, comm, b.Data, mpi.Sum); err != nil {
			return fmt.Errorf("all-reduce bucket %d: %w", b.Index, err)
		}
		return nil
	}
	plan.pack(share)
	if err := mpi.AllReduce(ctx, comm, plan.sumP, mpi.Sum); err != nil {
		return fmt.Errorf("all-reduce P of bucket %d: %w", b.Index, err)
	}
	for i := range plan.matrices {
		plan.matrices[i].computeQ(share)
	}
	if err := mpi.AllReduce(ctx, comm, plan.sumQ, mpi.Sum); err != nil {
		return fmt.Errorf("all-reduce Q of bucket %d: %w", b.Index, err)
	}
	rest := plan.sumP
	for _, grad := range plan.plain {
		rest = rest[copy(grad, rest):]
	}
	for i := range plan.matrices {
		plan.matrices[i].finish()
	}
	return nil
}

// State implements Hook. It returns the count of steps and every Q, which are the same on all ranks, and the residuals, which are this
// rank's own.
func (h *powerSGD) State() []State { return slices.Concat(h.states, h.feedback.states) }

// String returns the configuration.
func (h *powerSGD) String() string {
	return fmt.Sprintf("PowerSGD of rank %d from step %d for gradients that shrink by %v, seed %d",
		h.cfg.Rank, h.cfg.Start, h.cfg.MinRate, h.cfg.Seed)
}

// powerPlan describes how one bucket is sent: [plain gradients | all P] in one all-reduce, all Q in the next.
type powerPlan struct {
	plain      [][]float32 // views of the bucket
	matrices   []lowRank
	sumP, sumQ []float32
}

// assignBuffers assigns parts of the buffers to the matrices of a bucket.
func (plan *powerPlan) assignBuffers(first, second, left []float32) {
	p, q := 0, 0
	for _, grad := range plan.plain {
		p += len(grad)
	}
	for i := range plan.matrices {
		f := &plan.matrices[i]
		f.p, p = first[p:][:f.rank*f.rows:f.rank*f.rows], p+f.rank*f.rows
		f.q, q = second[q:][:f.rank*f.cols:f.rank*f.cols], q+f.rank*f.cols
		f.left, left = left[:len(f.m):len(f.m)], left[len(f.m):]
	}
	plan.sumP, plan.sumQ = first[:p], second[:q]
}

// pack fills the buffer of the first all-reduce.
func (plan *powerPlan) pack(share float32) {
	rest := plan.sumP
	for _, grad := range plan.plain {
		vec.Scale(grad, share)
		rest = rest[copy(rest, grad):]
	}
	for i := range plan.matrices {
		f := &plan.matrices[i]
		vec.Add(f.m, f.left)
		f.computeP(share)
	}
}

// lowRank approximates one gradient, a matrix M of rows x cols, by P transposed(Q) with few columns. P and Q are stored
// transposed: rank x rows and rank x cols.
type lowRank struct {
	name             string
	rows, cols, rank int
	seed             uint64
	m, left          []float32 // the gradient, and its residual
	p, q             []float32 // in the buffers that are all-reduced
	warm             []float32 // the last Q, with which the next step begins; the same on all ranks
}

// fresh writes a random column of Q, which is the same on all ranks.
func (f *lowRank) fresh(k int, dst []float32) {
	h := fnv.New64a()
	h.Write([]byte(f.name))
	src := rand.New(rand.NewPCG(f.seed, h.Sum64()+uint64(k)))
	for i := range dst {
		dst[i] = float32(src.NormFloat64())
	}
}

// computeP computes P = M Q, scaled, with an orthonormal Q.
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

// computeQ computes Q = transposed(M) P, scaled, with an orthonormal P, which is made from the sum of all ranks' P.
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

// finish replaces M by P transposed(Q), with the same bits on all ranks, and keeps the difference as the residual. If the
// result is not finite, M becomes NaN, and the residual stays unchanged.
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

// A vector that is shorter than this, relative to its length before or absolutely, is only rounding errors.
const (
	dependent = 0x1p-20
	vanishing = 0x1p-100
)

// orthonormalize makes the vectors of length n in v orthonormal by Gram-Schmidt. It repeats the projection of a vector
// as long as a pass removes more than half of it, because the rest would be mostly rounding errors ("twice is enough", Parlett, The
// Symmetric Eigenvalue Problem, 6.9). A vector that vanishes, or depends on those before it within the precision of float32, is replaced by
// what fresh writes, or by zero without fresh.
//
// All machines get the same bits for the same v.
func orthonormalize(v []float32, n int, fresh func(k int, dst []float32)) {
	for k := range len(v) / n {
		x := v[k*n : (k+1)*n]
		length := project(x, v[:k*n])
		if length == 0 && fresh != nil {
			fresh(k, x)
			length = project(x, v[:k*n])
		}
		if length == 0 {
			clear(x)
			continue
		}
		for i := range x {
			x[i] = float32(float64(x[i]) / length)
		}
	}
}

// project removes from x its components along orthonormal vectors, and returns the length of the rest, or 0 if that is only rounding
// errors.
func project(x, vectors []float32) float64 {
	n, length := len(x), math.Sqrt(vec.Dot(x, x))
	least := max(dependent*length, vanishing)
	for {
		before := length
		for y := vectors; len(y) > 0; y = y[n:] {
			vec.Axpy(x, -float32(vec.Dot(x, y[:n])), y[:n])
		}
		length = math.Sqrt(vec.Dot(x, x))
		if length < least {
			return 0
		}
		if !(length < before/2) { // also true for NaN
			return length
		}
	}
}
