package ddp

import "ddpbatch/trainer/internal/vec"

// powerPlan is how one bucket is sent: [plain gradients | all P] in one all-reduce, all Q in the next.
type powerPlan struct {
	plain      [][]float32 // views of the bucket
	matrices   []lowRank
	sumP, sumQ []float32
}

// place gives the matrices of a bucket their parts of the buffers.
func (plan *powerPlan) place(first, second, left []float32) {
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
