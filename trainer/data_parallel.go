package trainer

import (
	"context"
	"sync"

	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/vec"
	"ddpbatch/trainer/nn"
)

// dataParallel is the engine of mode "dp", torch.nn.DataParallel: several replicas in one process, each of which handles a part of
// the batch on a core of its own. The parameters are the first replica's, and the others share them. The others' gradients are added to
// the first's in the order of the replicas, so that the result does not depend on which is ready first.
type dataParallel struct {
	replicas []*replica    // the first is the model
	params   [][]*nn.Param // of each
	passes   []nn.Pass
	parts    []data.Batch
	losses   []float64
}

// newDataParallel makes an engine of replicas of the same layers. The parameters of all but the first lose their values.
func newDataParallel(replicas []*replica) *dataParallel {
	d := &dataParallel{
		replicas: replicas, passes: make([]nn.Pass, len(replicas)),
		parts: make([]data.Batch, len(replicas)), losses: make([]float64, len(replicas)),
	}
	for _, r := range replicas {
		d.params = append(d.params, r.layers.Params())
	}
	return d
}

// share makes the other replicas' parameters views of the first one's, whose memory may have been replaced, and copies its buffers to them:
// in the end a batch changes only the first one's buffers.
func (d *dataParallel) share() {
	buffers := d.model().Buffers()
	for i, r := range d.replicas[1:] {
		for j, p := range d.params[i+1] {
			p.Value = d.params[0][j].Value
		}
		for j, b := range r.layers.Buffers() {
			copy(b.Value, buffers[j].Value)
		}
	}
}

func (d *dataParallel) model() *nn.Sequential { return d.replicas[0].layers }

func (d *dataParallel) train(ctx context.Context, pass *nn.Pass, b *data.Batch, factor float32,
	begin func(ctx context.Context, loss float64)) error {
	d.share()
	splitBatch(d.parts, b)
	var all sync.WaitGroup
	for i := range d.replicas {
		all.Go(func() { d.trainPart(i, pass, b.Rows, factor) })
	}
	all.Wait()

	var loss float64
	for i, part := range d.parts {
		if part.Rows > 0 {
			loss += d.losses[i] * float64(part.Rows) / float64(b.Rows)
		}
	}
	begin(ctx, loss)
	first := d.params[0]
	for j := len(first) - 1; j >= 0; j-- { // as Backward goes
		for _, others := range d.params[1:] {
			vec.Add(first[j].Grad, others[j].Grad)
		}
		pass.Done(first[j])
	}
	return nil
}

// trainPart computes replica i's gradients. The first replica's are added to; the others' hold only their part.
func (d *dataParallel) trainPart(i int, pass *nn.Pass, rows int, factor float32) {
	r, part, own := d.replicas[i], &d.parts[i], &d.passes[i]
	if i > 0 {
		nn.ZeroGrad(d.params[i])
	}
	if d.losses[i] = 0; part.Rows == 0 {
		return
	}
	*own = nn.Pass{Training: pass.Training, BLAS: pass.BLAS, Seed: mix(pass.Seed, uint64(i))}
	loss, dy := r.loss(r.layers.Forward(own, r.x(part)), part)
	scale(dy, factor*float32(part.Rows)/float32(rows))
	r.layers.Backward(own, dy, false)
	d.losses[i] = loss
}

func (d *dataParallel) score(_ context.Context, pass *nn.Pass, b *data.Batch) (score, error) {
	d.share()
	splitBatch(d.parts, b)
	scores := make([]score, len(d.replicas))
	var all sync.WaitGroup
	for i, r := range d.replicas {
		all.Go(func() {
			d.passes[i] = nn.Pass{BLAS: pass.BLAS}
			part := &d.parts[i]
			scores[i] = scoreOf(r.layers.Forward(&d.passes[i], r.x(part)), part, r.loss)
		})
	}
	all.Wait()
	var sum score
	for _, s := range scores {
		sum.loss += s.loss
		sum.right += s.right
	}
	return sum, nil
}

func (d *dataParallel) firstNonFinite(pass *nn.Pass, b *data.Batch) string {
	return d.replicas[0].firstNonFinite(pass, b)
}

// splitBatch divides b's rows among parts, in order, as torch.chunk does: the same number to each, and fewer, or none, to the last ones.
// The parts are views of b.
func splitBatch(parts []data.Batch, b *data.Batch) {
	each := (b.Rows + len(parts) - 1) / len(parts)
	for i := range parts {
		first := min(i*each, b.Rows)
		end := min(first+each, b.Rows)
		parts[i] = data.Batch{
			Rows: end - first,
			X:    rowsOf(b.X, b.Rows, first, end), Y: rowsOf(b.Y, b.Rows, first, end), Labels: rowsOf(b.Labels, b.Rows, first, end),
		}
	}
}

// rowsOf returns the rows from first to before end of a table of rows.
func rowsOf[T any](table []T, rows, first, end int) []T {
	if rows == 0 {
		return nil
	}
	width := len(table) / rows
	return table[first*width : end*width]
}

// mix combines two seeds into one that differs if either does (the finalizer of SplitMix64).
func mix(a, b uint64) uint64 {
	z := a + 0x9e3779b97f4a7c15*(b+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
