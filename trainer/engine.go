package trainer

import (
	"context"
	"strings"

	"ddpbatch/trainer/blas"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// An engine computes with the rank's part of the model: the whole of it, several replicas of it, or a stage of a pipeline.
type engine interface {
	// model returns the part of the model that this rank trains.
	model() *nn.Sequential

	// train adds the gradient of b's mean loss, times factor, to the gradients of model. b may have no rows. Once the loss is known,
	// and before the last gradients are computed, it calls begin with the loss; it computes those with pass. A stage that does not compute
	// the loss passes 0.
	train(ctx context.Context, pass *nn.Pass, b *data.Batch, factor float32, begin func(ctx context.Context, loss float64)) error

	// score evaluates b's rows. A stage that does not compute the outputs returns the zero score.
	score(ctx context.Context, pass *nn.Pass, b *data.Batch) (score, error)

	// firstNonFinite names the first layer of this rank whose output is not finite, for b or for its last input from b. It returns "" if
	// there is none.
	firstNonFinite(pass *nn.Pass, b *data.Batch) string
}

// score is the result of a model on rows that it is not trained on.
type score struct {
	loss  float64 // sum over rows of their mean losses
	right int     // number of labels predicted right
}

// replica is a copy of the model with its loss, the engine of mode "ddp".
type replica struct {
	layers *nn.Sequential
	loss   lossFunc
	inputs int // columns of x
}

func (r *replica) model() *nn.Sequential { return r.layers }

func (r *replica) train(ctx context.Context, pass *nn.Pass, b *data.Batch, factor float32,
	begin func(ctx context.Context, loss float64)) error {
	loss, dy := r.loss(r.layers.Forward(pass, r.x(b)), b)
	begin(ctx, loss)
	scale(dy, factor)
	r.layers.Backward(pass, dy, false)
	return nil
}

func (r *replica) score(_ context.Context, pass *nn.Pass, b *data.Batch) (score, error) {
	return scoreOf(r.layers.Forward(pass, r.x(b)), b, r.loss), nil
}

func (r *replica) firstNonFinite(pass *nn.Pass, b *data.Batch) string {
	return firstNonFiniteOf(r.layers, pass, r.x(b))
}

func (r *replica) x(b *data.Batch) nn.Matrix {
	return nn.Matrix{Rows: b.Rows, Cols: r.inputs, Data: b.X}
}

func scoreOf(y nn.Matrix, b *data.Batch, loss lossFunc) score {
	mean, _ := loss(y, b)
	return score{loss: mean * float64(b.Rows), right: countRight(y, b)}
}

// scale multiplies dy by factor. It does nothing if factor is 1.
func scale(dy nn.Matrix, factor float32) {
	if factor != 1 {
		vec.Scale(dy.Data, factor)
	}
}

// openBLAS opens the library that computes matrix products.
func (t *trainer) openBLAS() error {
	threads := max(1, t.env.Threads)
	if t.cfg.Mode == "dp" {
		threads = 1 // for each replica
	}
	library, info, err := blas.Open(blas.Config{Library: t.libraryPath(), Threads: threads, Dirs: t.env.LibraryDirs})
	if err != nil {
		return err
	}
	how := "float32"
	if t.cfg.Precision != "float32" {
		library, how = blas.Narrow(library, blas.Precision(t.cfg.Precision))
	}
	t.blas = library
	if t.env.Comm.Rank() == 0 {
		t.print("rank 0 | matrix products by %s | %s\n", info, how)
		if network := t.env.Comm.Network(); network != "" {
			t.print("rank 0 | data by %s\n", network)
		}
		t.advice = info.Advice
	}
	return nil
}

// advise recommends a faster library, on rank 0, if the model is large enough for matrix products to matter.
func (t *trainer) advise(model *nn.Sequential) {
	const few = 4096 // parameters: a step takes no longer than its collectives
	count := 0
	for _, p := range model.Params() {
		count += len(p.Value)
	}
	if t.advice != "" && count > few {
		t.log.Warn(t.advice)
	}
}

// libraryPath returns the path that blas names. With a slash it is relative to the job's workdir; otherwise the loader searches for it.
func (t *trainer) libraryPath() string {
	if strings.Contains(t.cfg.BLAS, "/") {
		return below(t.env.WorkDir, t.cfg.BLAS)
	}
	return t.cfg.BLAS
}

// newEngine makes the engine that computes this rank's part of the gradients.
func (t *trainer) newEngine() (engine, error) {
	whole, err := t.newReplica()
	if err != nil {
		return nil, err
	}
	t.names = nil
	for _, a := range stateOf(whole.layers) {
		t.names = append(t.names, a.Name)
	}
	t.advise(whole.layers)
	switch {
	case t.cfg.Mode == "dp":
		replicas := []*replica{whole}
		for range t.replicas() - 1 {
			r, err := t.newReplica()
			if err != nil {
				return nil, err
			}
			replicas = append(replicas, r)
		}
		return newDataParallel(replicas), nil
	case t.cfg.Pipeline == 1:
		return whole, nil
	}
	return t.newStage(whole)
}

func (t *trainer) newReplica() (*replica, error) {
	var sums nn.Reducer
	if t.batchNorm != nil {
		sums = t.batchNorm
	}
	layers, err := newModel(t.cfg.Model, t.train.Spec(), t.cfg.Seed, sums)
	if err != nil {
		return nil, err
	}
	return &replica{layers: layers, loss: newLoss(t.cfg.Loss), inputs: t.train.Spec().Inputs}, nil
}

// newStage makes this rank's stage of a pipeline. Each copy of the stage is cut out of a whole model, which all ranks initialize alike, and
// shares the memory of the first copy; the rest of the model is dropped.
func (t *trainer) newStage(whole *replica) (engine, error) {
	bounds := boundaries(whole.layers, whole.inputs)
	at, err := splitIntoStages(whole.layers, bounds, t.cfg.Pipeline)
	if err != nil {
		return nil, err
	}
	stage := t.topology.pipelineGroup.Rank()
	p := newPipeline(t.topology.pipelineGroup, t.microBatches(), bounds[at[stage]], bounds[at[stage+1]])
	for whole.layers = whole.layers.Slice(at[stage], at[stage+1]); ; {
		p.add(whole)
		if p.full() {
			return p, nil
		}
		if whole, err = t.newReplica(); err != nil {
			return nil, err
		}
		whole.layers = whole.layers.Slice(at[stage], at[stage+1])
	}
}

// replicas returns how many replicas each rank has in mode "dp".
func (t *trainer) replicas() int {
	if t.cfg.Replicas > 0 {
		return t.cfg.Replicas
	}
	return max(1, t.env.Threads)
}

// microBatches returns how many parts a pipeline cuts a batch into.
func (t *trainer) microBatches() int {
	if t.cfg.MicroBatches > 0 {
		return t.cfg.MicroBatches
	}
	return t.cfg.Pipeline
}

// lossFunc returns the mean loss of outputs y for the rows of b, and its gradient.
type lossFunc func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix)

func newLoss(name string) lossFunc {
	if name == "mse" {
		var mse nn.MSE
		return func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix) {
			return mse.Loss(y, nn.Matrix{Rows: y.Rows, Cols: y.Cols, Data: b.Y})
		}
	}
	var entropy nn.CrossEntropy
	return func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix) {
		return entropy.Loss(y, b.Labels)
	}
}

// countRight returns in how many rows of logits the label has the largest one.
func countRight(logits nn.Matrix, b *data.Batch) int {
	n := 0
	for i, label := range b.Labels {
		if nn.Argmax(logits.Row(i)) == label {
			n++
		}
	}
	return n
}
