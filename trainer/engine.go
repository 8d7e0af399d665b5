package trainer

import (
	"context"

	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// An engine computes with the rank's part of the model: the whole of it, several replicas of it, or a stage of a pipeline.
type engine interface {
	// model is what of the model this rank trains.
	model() *nn.Sequential

	// train adds the gradient of b's mean loss, times factor, to the gradients of model. b may have no rows. Once the loss is known,
	// and before the last gradients are, it calls begin with it; these it computes with pass. A stage that does not see the loss gives 0.
	train(ctx context.Context, pass *nn.Pass, b *data.Batch, factor float32, begin func(ctx context.Context, loss float64)) error

	// score evaluates b's rows. A stage that does not see the outputs gives the zero score.
	score(ctx context.Context, pass *nn.Pass, b *data.Batch) (score, error)

	// fault names the first layer of this rank that makes numbers that are not finite of b, or of what it got for b last; empty: none.
	fault(pass *nn.Pass, b *data.Batch) string
}

// score is what a model does on rows that it is not trained on.
type score struct {
	loss  float64 // sum over rows of their mean losses
	right int     // labels that it predicts
}

// replica is a copy of the model with its loss, the engine of mode "ddp".
type replica struct {
	layers *nn.Sequential
	loss   lossFunc
	inputs int // columns of x
}

func (r *replica) model() *nn.Sequential { return r.layers }

func (r *replica) train(ctx context.Context, pass *nn.Pass, b *data.Batch, factor float32, begin func(ctx context.Context, loss float64)) error {
	loss, dy := r.loss(r.layers.Forward(pass, r.x(b)), b)
	begin(ctx, loss)
	scale(dy, factor)
	r.layers.Backward(pass, dy, false)
	return nil
}

func (r *replica) score(_ context.Context, pass *nn.Pass, b *data.Batch) (score, error) {
	return scoreOf(r.layers.Forward(pass, r.x(b)), b, r.loss), nil
}

func (r *replica) fault(pass *nn.Pass, b *data.Batch) string { return faultOf(r.layers, pass, r.x(b)) }

func (r *replica) x(b *data.Batch) nn.Matrix {
	return nn.Matrix{Rows: b.Rows, Cols: r.inputs, Data: b.X}
}

func scoreOf(y nn.Matrix, b *data.Batch, loss lossFunc) score {
	mean, _ := loss(y, b)
	return score{loss: mean * float64(b.Rows), right: countRight(y, b)}
}

// scale is dy *= factor, for nothing where that changes nothing.
func scale(dy nn.Matrix, factor float32) {
	if factor != 1 {
		vec.Scale(dy.Data, factor)
	}
}
