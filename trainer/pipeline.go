package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// pipeline is one stage of a model whose layers are split over the ranks of comm: rank i has the i-th stage. A batch is cut
// into micro-batches, so that the stages work at the same time: each computes all of them forward, and then backward (GPipe, Huang et
// al., arXiv 1811.06965). Activations and their gradients are sent from rank to rank.
type pipeline struct {
	comm   *mpi.Comm
	micro  []*replica // a copy of the stage for each micro-batch, with its own memory for activations; they share the parameters
	passes []nn.Pass
	parts  []data.Batch
	first  boundary // shape of the stage's input
	last   boundary // shape of its output
	x, dy  []nn.Matrix
	sends  []*mpi.Request
}

// boundary is the shape of the data between two layers, for one row of a batch.
type boundary struct{ rows, cols int }

// newPipeline makes stage comm.Rank() of a pipeline, without layers yet: add adds one copy of them for each micro-batch.
func newPipeline(comm *mpi.Comm, micro int, first, last boundary) *pipeline {
	return &pipeline{
		comm: comm, first: first, last: last, passes: make([]nn.Pass, micro), parts: make([]data.Batch, micro),
		x: make([]nn.Matrix, micro), dy: make([]nn.Matrix, micro),
	}
}

// add adds a copy of the stage's layers. All copies but the first give up their parameters, gradients and buffers for those of the first.
func (p *pipeline) add(r *replica) {
	p.micro = append(p.micro, r)
	p.share()
}

// full reports whether there is a copy of the layers for each micro-batch.
func (p *pipeline) full() bool { return len(p.micro) == len(p.parts) }

// share makes all copies use the parameters, gradients and buffers of the first, whose memory may have been replaced.
func (p *pipeline) share() {
	params, buffers := p.model().Params(), p.model().Buffers()
	for _, r := range p.micro[1:] {
		for i, w := range r.layers.Params() {
			w.Value, w.Grad = params[i].Value, params[i].Grad
		}
		for i, b := range r.layers.Buffers() {
			b.Value = buffers[i].Value
		}
	}
}

func (p *pipeline) model() *nn.Sequential { return p.micro[0].layers }

func (p *pipeline) isFirst() bool { return p.comm.Rank() == 0 }
func (p *pipeline) isLast() bool  { return p.comm.Rank() == p.comm.Size()-1 }

func (p *pipeline) train(ctx context.Context, pass *nn.Pass, b *data.Batch, factor float32,
	begin func(ctx context.Context, loss float64)) error {
	p.share()
	splitBatch(p.parts, b)
	var loss float64
	for i := range p.micro {
		p.passes[i] = nn.Pass{Training: pass.Training, BLAS: pass.BLAS, Seed: mix(pass.Seed, uint64(i))}
		mean, err := p.forward(ctx, i, factor, b.Rows)
		if err != nil {
			return err
		}
		loss += mean
	}
	// The first micro-batch is computed backward last: it has rows if any has, and its gradients complete the sums.
	for i := len(p.micro) - 1; i >= 0; i-- {
		if i == 0 {
			begin(ctx, loss)
			p.passes[0].Ready = pass.Ready
		}
		if err := p.backward(ctx, i); err != nil {
			return err
		}
	}
	return p.sent(ctx)
}

// forward computes micro-batch i through the stage. The last stage leaves the gradient of the loss in dy, and returns the
// micro-batch's part of the whole batch's mean loss.
func (p *pipeline) forward(ctx context.Context, i int, factor float32, rows int) (float64, error) {
	r, part := p.micro[i], &p.parts[i]
	x, err := p.input(ctx, i)
	if err != nil {
		return 0, err
	}
	y := r.layers.Forward(&p.passes[i], x)
	if !p.isLast() {
		p.send(y, p.comm.Rank()+1, i)
		return 0, nil
	}
	mean, dy := r.loss(y, part)
	if p.dy[i] = dy; part.Rows == 0 {
		return 0, nil
	}
	share := float64(part.Rows) / float64(rows)
	scale(dy, factor*float32(share))
	return mean * share, nil
}

// input returns the input of the stage for micro-batch i.
func (p *pipeline) input(ctx context.Context, i int) (nn.Matrix, error) {
	if p.isFirst() {
		return p.micro[i].x(&p.parts[i]), nil
	}
	err := p.receive(ctx, &p.x[i], p.first, p.parts[i].Rows, p.comm.Rank()-1, i)
	return p.x[i], err
}

func (p *pipeline) backward(ctx context.Context, i int) error {
	if !p.isLast() {
		if err := p.receive(ctx, &p.dy[i], p.last, p.parts[i].Rows, p.comm.Rank()+1, i); err != nil {
			return err
		}
	}
	dx := p.micro[i].layers.Backward(&p.passes[i], p.dy[i], !p.isFirst())
	if !p.isFirst() {
		p.send(dx, p.comm.Rank()-1, i)
	}
	return nil
}

func (p *pipeline) score(ctx context.Context, pass *nn.Pass, b *data.Batch) (score, error) {
	p.share()
	p.parts[0] = *b
	x, err := p.input(ctx, 0)
	if err != nil {
		return score{}, err
	}
	y := p.model().Forward(pass, x)
	if p.isLast() {
		return scoreOf(y, b, p.micro[0].loss), nil
	}
	p.send(y, p.comm.Rank()+1, 0)
	return score{}, p.sent(ctx)
}

func (p *pipeline) firstNonFinite(pass *nn.Pass, _ *data.Batch) string {
	for i, r := range p.micro {
		x := p.x[i]
		if p.isFirst() {
			x = r.x(&p.parts[i])
		}
		// If the input is not finite, the previous stage reports that.
		if !vec.Finite(x.Data) && !p.isFirst() {
			continue
		}
		if what := firstNonFiniteOf(r.layers, pass, x); what != "" {
			return what
		}
	}
	return ""
}

// send begins to send m. Its module leaves m unchanged until sent has returned.
func (p *pipeline) send(m nn.Matrix, to, tag int) {
	if len(m.Data) > 0 {
		p.sends = append(p.sends, mpi.ISend(p.comm, m.Data, to, tag))
	}
}

// sent waits until everything has been sent.
func (p *pipeline) sent(ctx context.Context) error {
	err := mpi.WaitAll(ctx, p.sends...)
	clear(p.sends)
	p.sends = p.sends[:0]
	if err != nil {
		return fmt.Errorf("pipeline stage %d: send: %w", p.comm.Rank(), err)
	}
	return nil
}

// receive receives into m what another stage sends for the given rows of a micro-batch.
func (p *pipeline) receive(ctx context.Context, m *nn.Matrix, shape boundary, rows, from, tag int) error {
	m.Rows, m.Cols = rows*shape.rows, shape.cols
	size := m.Rows * m.Cols
	m.Data = slices.Grow(m.Data[:0], size)[:size]
	if size == 0 {
		return nil
	}
	if _, err := mpi.Recv(ctx, p.comm, m.Data, from, tag); err != nil {
		return fmt.Errorf("pipeline stage %d: receive from stage %d: %w", p.comm.Rank(), from, err)
	}
	return nil
}

// boundaries passes one row of zeros through layers and returns the shapes before the first, between them, and after the last.
func boundaries(layers *nn.Sequential, inputs int) []boundary {
	x := nn.NewMatrix(1, inputs)
	all := []boundary{{1, inputs}}
	for i := range layers.Len() {
		x = layers.Child(i).Module.Forward(&nn.Pass{}, x)
		all = append(all, boundary{x.Rows, x.Cols})
	}
	return all
}

// splitIntoStages splits layers into stages so that the largest cost of a stage is as small as possible: stage i is the layers from
// the i-th result to before the next one.
func splitIntoStages(layers *nn.Sequential, bounds []boundary, stages int) ([]int, error) {
	n := layers.Len()
	if stages > n {
		return nil, fmt.Errorf("pipeline is %d, but the model has only %d layers to split: make pipeline smaller", stages, n)
	}
	sums := make([]float64, n+1) // costs of the layers before each layer
	for i := range n {
		sums[i+1] = sums[i] + cost(layers.Child(i).Module, bounds[i+1])
	}
	// worst[k][end] is the smallest possible maximum cost of a stage if k stages share the layers before end.
	worst, cut := make([][]float64, stages+1), make([][]int, stages+1)
	for k := range worst {
		worst[k], cut[k] = make([]float64, n+1), make([]int, n+1)
		for end := range worst[k] {
			worst[k][end] = math.Inf(1)
		}
	}
	worst[0][0] = 0
	for k := 1; k <= stages; k++ {
		for end := k; end <= n; end++ {
			for begin := k - 1; begin < end; begin++ {
				if w := max(worst[k-1][begin], sums[end]-sums[begin]); w < worst[k][end] {
					worst[k][end], cut[k][end] = w, begin
				}
			}
		}
	}
	at := make([]int, stages+1)
	at[stages] = n
	for k := stages; k > 0; k-- {
		at[k-1] = cut[k][at[k]]
	}
	return at, nil
}

// cost estimates the multiplications of a layer: each weight is used once for each row of the output, and that of a convolution once for
// each pixel of a channel. One is added, so that a layer without weights has a cost, too.
func cost(layer nn.Module, out boundary) float64 {
	sum := 1.0
	for _, p := range layer.Params() {
		uses := out.rows
		switch len(p.Shape) {
		case 4:
			uses = out.rows * out.cols / p.Shape[0]
		case 1:
			continue
		}
		sum += float64(len(p.Value)) * float64(uses)
	}
	return sum
}

// topology is the place of a rank among the others. Without a pipeline every rank is a replica of the model. With a pipeline of K stages,
// K consecutive ranks form a replica: rank r is stage r mod K of replica r / K.
type topology struct {
	dataParallelGroup *mpi.Comm // the ranks that train the same layers on other rows; its rank i belongs to replica i
	pipelineGroup     *mpi.Comm // the ranks of the rank's pipeline; nil without one
	replica           int       // the copy of the model that this rank belongs to
	replicas          int       // how many copies there are
}

func topologyFits(cfg Config, world int) error {
	if world%cfg.Pipeline != 0 {
		return fmt.Errorf("%d ranks do not divide into pipelines of %d: start a multiple of train.pipeline", world, cfg.Pipeline)
	}
	return nil
}

// newTopology is collective.
func newTopology(ctx context.Context, comm *mpi.Comm, cfg Config) (topology, error) {
	stages := cfg.Pipeline
	l := topology{dataParallelGroup: comm, replica: comm.Rank() / stages, replicas: comm.Size() / stages}
	if stages == 1 {
		return l, nil
	}
	var err error
	if l.dataParallelGroup, err = comm.Split(ctx, comm.Rank()%stages, comm.Rank()); err != nil {
		return l, fmt.Errorf("group the ranks of a pipeline stage: %w", err)
	}
	if l.pipelineGroup, err = comm.Split(ctx, l.replica, comm.Rank()); err != nil {
		return l, fmt.Errorf("group the ranks of a pipeline: %w", err)
	}
	return l, nil
}
