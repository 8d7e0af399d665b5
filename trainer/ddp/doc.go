// Package ddp keeps replicas of a model equal over the ranks of a process group: PyTorch's
// DistributedDataParallel.
//
// Every rank builds the same model and wraps it. From then on each rank computes gradients from its own
// rows, averages them with those of all others, and takes the same step:
//
//	d, err := ddp.New(ctx, comm, model.Params(), model.Buffers(), ddp.DefaultConfig()) // rank 0's values win
//	...
//	for {
//		d.SyncBuffers(ctx)
//		d.ZeroGrad()
//		value, dy := loss.Loss(model.Forward(pass, x), labels)
//		sums := []float64{value}
//		d.Begin(ctx, pass, sums)
//		model.Backward(pass, dy, false) // gradients are averaged as they become complete
//		if err := d.Finish(); err != nil { ... } // now they are means over ranks, and sums are sums
//		optimizer.Step()
//	}
//
// # How it works
//
// Gradients are views of buckets, which are adjacent in memory of the Comm. Parameters are assigned to buckets in the order in which
// their gradients become complete: in the first step in a guessed order, the reverse of the model's, and from the second synchronized step
// on in the order that rank 0 has seen in the first. The first bucket is small. As soon as a bucket is full, and those before it have been
// reduced, its all-reduce starts on a goroutine of the step.
//
// PyTorch 1.13 differs only in the first step, in which it has one bucket for all gradients.
//
// # Other types
//
//   - A [Hook] averages buckets in fewer bits: [NewFloat16Hook], [NewBFloat16Hook], [NewInt8Hook] and [NewPowerSGDHook], or one of your
//     own. What the last two leave out of a step's gradients is added to the next one's, and must be saved in checkpoints: see [State].
//   - [Zero] keeps on each rank the optimizer of only its own share of the parameters, and updates that (ZeRO stage 1).
//   - [Averager] averages parameters every few steps instead of gradients in each (local SGD). It does not need a DDP.
//   - [Drift] compares the parameters of all ranks, and names the ranks that differ.
//   - [SyncBatchNorm] makes batch normalization use the rows of all ranks; with Config.SyncBatchNorm it fails together with the DDP.
//   - [CompareDigests] compares settings that must be equal.
//
// # Guarantees
//
// Parameters start with equal bits and get equal gradients, bit for bit, so replicas never drift apart. Without a Hook, and with
// mpi's Config.Deterministic, the bits depend only on the inputs and the number of ranks, and not on the
// sizes of buckets, on overlap or on the transport; with this package's hooks they depend on neither buckets nor overlap. Each rank's
// gradient is multiplied by the rounded reciprocal of the number of ranks and then added up, as in PyTorch. If the losses are means
// over the same number of rows, the result is that of one rank with all the rows, up to the rounding of sums.
//
// New detects models that differ in a name or a shape, and names the difference on every rank. An error in one rank's arguments is returned
// on all ranks. When a step fails on one rank, by an error or a panic of a Hook, a parameter that was not used, or the end of its context
// or process, Finish returns an error on all live ranks, which says what was wrong and where; then no goroutine is left, and nothing writes
// to gradients any more. The rank that fails does not wait for slower ranks.
//
// In steady state a step does not allocate.
//
// # Conventions
//
// All calls are collective, unless their documentation says otherwise: all ranks of the group make them, in the same order. Between Begin
// and Finish the DDP uses the Comm, and all methods except Finish and Close panic. What a rank does between collectives must not depend on
// anything that only it knows. An error means that the group is no longer in step, and the run must end. Only one goroutine at a time may
// use a DDP.
//
// # Limits
//
// Gradients are float32. A step has one Backward between Begin and Finish; gradients of earlier ones are added to the same mean. With
// FindUnused, buckets keep the guessed order, and a parameter that no rank has used in a step may still get the residual that an int8 or
// PowerSGD Hook keeps for it. All ranks must take the same number of steps, each with a Forward and a Backward: a rank whose rows are used
// up makes them with zero rows. Means are over all ranks of the group: scale the loss by the rank's rows in the step.
package ddp
