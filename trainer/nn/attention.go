package nn

import (
	"math"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/trainer/internal/vec"
)

// attentionBlock is how many symbols of a sequence are multiplied at a time. The products with symbols after a block are not computed: with
// n blocks that leaves (n+1)/2n of the work, but smaller products are slower.
const attentionBlock = 64

// CausalAttention is softmax(Q Kᵀ / sqrt(width of a head)) V for each head of each sequence, where a symbol attends to itself and
// to those before it (Vaswani and others: Attention Is All You Need, arXiv 1706.03762). It has no parameters: the projections
// before and after it are Linear layers.
type CausalAttention struct {
	stateless
	width, heads, context int
	qkv                   Matrix    // the input of the last Forward
	probs                 []float32 // [sequences, heads, context, context]; elements to the right of the diagonal's blocks are undefined
	y                     Matrix
	dscores               *Matrix // one head's gradient, [context, context]; used only within Backward
	dqkv                  *Matrix
}

// NewCausalAttention returns an attention for sequences of context symbols with the given width, a multiple of heads.
func NewCausalAttention(width, heads, context int) *CausalAttention {
	if width < 1 || heads < 1 || context < 1 || width%heads != 0 {
		panic("nn: attention needs a context, and a width that is a multiple of its heads")
	}
	return &CausalAttention{width: width, heads: heads, context: context, dscores: new(Matrix), dqkv: new(Matrix)}
}

// Forward takes rows [q | k | v], each of the layer's width and with the heads side by side, one row for each symbol, sequence by
// sequence. It returns rows of the layer's width. It keeps the probabilities for Backward: 4 context² heads bytes a sequence.
func (a *CausalAttention) Forward(p *Pass, qkv Matrix) Matrix {
	if qkv.Cols != 3*a.width || qkv.Rows%a.context != 0 {
		panic("nn: input of an attention has the wrong shape")
	}
	a.qkv = qkv
	a.y.resize(qkv.Rows, a.width)
	count := qkv.Rows / a.context * a.heads
	if size := count * a.context * a.context; cap(a.probs) < size {
		a.probs = make([]float32, size)
	}
	for i := range count {
		a.forwardHead(p, i)
	}
	return a.y
}

func (a *CausalAttention) forwardHead(p *Pass, i int) {
	q, k, v := a.inputs(a.qkv, i)
	y, probs := a.output(a.y, i), a.headProbs(i)
	for first := 0; first < a.context; first += attentionBlock {
		end := min(first+attentionBlock, a.context)
		block := probs.from(first, 0)
		p.multiply(block, q.from(first, 0), blas.NoTrans, k, blas.Trans, end-first, end, a.headWidth(), a.scale(), 0)
		for i := first; i < end; i++ {
			row := probs.row(i, end)
			vec.Softmax(row[:i+1], row[:i+1])
			clear(row[i+1:])
		}
		p.multiply(y.from(first, 0), block, blas.NoTrans, v, blas.NoTrans, end-first, a.headWidth(), end, 1, 0)
	}
}

// Backward returns [dq | dk | dv].
func (a *CausalAttention) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, a.y)
	if !input {
		return Matrix{}
	}
	a.dqkv.resize(a.qkv.Rows, a.qkv.Cols)
	a.dscores.resize(a.context, a.context)
	for i := range a.qkv.Rows / a.context * a.heads {
		a.backwardHead(p, dy, i)
	}
	return *a.dqkv
}

func (a *CausalAttention) backwardHead(p *Pass, dy Matrix, i int) {
	q, k, v := a.inputs(a.qkv, i)
	dq, dk, dv := a.inputs(*a.dqkv, i)
	out, probs, ds := a.output(dy, i), a.headProbs(i), whole(*a.dscores)
	// Rows of the scores: the products of queries with the keys of all symbols up to their own.
	for first := 0; first < a.context; first += attentionBlock {
		end := min(first+attentionBlock, a.context)
		block := ds.from(first, 0)
		p.multiply(block, out.from(first, 0), blas.NoTrans, v, blas.Trans, end-first, end, a.headWidth(), 1, 0)
		for i := first; i < end; i++ {
			row := ds.row(i, end)
			vec.SoftmaxGrad(row[:i+1], probs.row(i, i+1), row[:i+1])
			clear(row[i+1:])
		}
		p.multiply(dq.from(first, 0), block, blas.NoTrans, k, blas.NoTrans, end-first, a.headWidth(), end, a.scale(), 0)
	}
	// Columns: the gradients of keys and values, from the queries of all symbols from their own on.
	for first := 0; first < a.context; first += attentionBlock {
		n, rest := min(attentionBlock, a.context-first), a.context-first
		p.multiply(dk.from(first, 0), ds.from(first, first), blas.Trans, q.from(first, 0), blas.NoTrans, n,
			a.headWidth(), rest, a.scale(), 0)
		p.multiply(dv.from(first, 0), probs.from(first, first), blas.Trans, out.from(first, 0), blas.NoTrans, n, a.headWidth(), rest, 1, 0)
	}
}

func (a *CausalAttention) headWidth() int { return a.width / a.heads }

func (a *CausalAttention) scale() float32 { return float32(1 / math.Sqrt(float64(a.headWidth()))) }

// inputs returns the three parts of m, which has the layout of the input, that belong to the i-th head, counted over all sequences.
func (a *CausalAttention) inputs(m Matrix, i int) (q, k, v view) {
	head := view{m.Data, m.Cols}.from(i/a.heads*a.context, i%a.heads*a.headWidth())
	return head, head.from(0, a.width), head.from(0, 2*a.width)
}

// output is the same for m with the layout of the output.
func (a *CausalAttention) output(m Matrix, i int) view {
	return view{m.Data, m.Cols}.from(i/a.heads*a.context, i%a.heads*a.headWidth())
}

func (a *CausalAttention) headProbs(i int) view {
	return view{a.probs[i*a.context*a.context:], a.context}
}
