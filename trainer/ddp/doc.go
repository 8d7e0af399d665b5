// Package ddp keeps replicas of a model equal over the ranks of a process group:
// DistributedDataParallel, as far as gradients in one buffer go.
//
// Every rank builds the same model and wraps it. From then on each computes gradients from its own
// rows, averages them with all others, and takes the same step:
//
//	d, err := ddp.New(ctx, comm, model.Params(), 1) // checks that the models agree; rank 0's values win
//	...
//	for {
//		d.ZeroGrad()
//		value, dlogits := loss.Loss(model.Forward(x), labels)
//		model.Backward(dlogits, false)
//		d.Scalars()[0] = float32(value)
//		if err := d.AllReduce(ctx); err != nil { ... } // gradients are means, scalars are sums
//		optimizer.Step()
//	}
//
// # Guarantees
//
// Parameters start with equal bits and get equal gradients, bit for bit, so replicas
// never drift apart. Where gradients of equally many rows are means over those rows, the result is that of
// one rank with all the rows, up to the rounding of sums.
//
// Everything here is collective: all ranks of the group call it, in the same order. What a
// rank does between collectives must not depend on anything that only it knows. An error means that the
// group is no longer in step, and the run must end. A wrapper is used by one goroutine at a time.
package ddp
