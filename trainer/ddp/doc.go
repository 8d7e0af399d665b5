// Package ddp keeps replicas of a model equal over the ranks of a process group: PyTorch's
// DistributedDataParallel.
//
// Every rank builds the same model and wraps it. From then on each computes gradients from its own
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
// # How it goes
//
// Gradients are views of buckets, which lie one after another in memory of the Comm. Parameters are dealt to buckets in the order in which
// their gradients become complete: at first a guess, the reverse of the model's order, and from the second synchronized step on what
// rank 0 has seen in the first. The first bucket is small. As soon as a bucket is full, and those before it have been reduced, its
// all-reduce starts on a goroutine of the step's own.
//
// PyTorch 1.13 differs in the first step, in which it has one bucket for all; and its buckets of later steps are the same.
//
// # Besides
//
//   - A [Hook] averages buckets in fewer bits: [NewFloat16Hook], [NewBFloat16Hook], [NewInt8Hook] and [NewPowerSGDHook]; or write another.
//     What the last two leave out of a step's gradients is added to the next one's, and belongs into checkpoints: see [State].
//   - [Zero] has each rank keep the optimizer of its own share of the parameters only, and steps that (ZeRO stage 1).
//   - [Averager] averages parameters every few steps instead of gradients in each (local SGD). It needs no DDP.
//   - [Drift] compares the parameters of all ranks, and names the ranks that differ.
//   - [SyncBatchNorm] has batch normalization use the rows of all ranks; with Config.SyncBatchNorm it fails with the DDP.
//   - [CompareDigests] is for settings that must be equal.
//
// # Guarantees
//
// Parameters start with equal bits and get equal gradients, bit for bit, so replicas never drift apart. Without a Hook, and with
// mpi's Config.Deterministic, the bits depend on the inputs and the number of ranks alone: not on the
// sizes of buckets, on overlap or on the transport; with this package's hooks they depend on neither buckets nor overlap. Each rank's
// gradient is multiplied by the rounded reciprocal of the number of ranks and then added up, as PyTorch does it. Where the losses are means
// over equally many rows, the result is that of one rank with all the rows, up to the rounding of sums.
//
// New tells models apart that differ in a name or a shape, on every rank and in words; what is wrong with one rank's arguments is an error
// of all. When a step fails on one rank, by an error or a panic of a Hook, a parameter that was not used, or the end of its context or
// process, Finish returns an error on all that are alive, which says what was wrong and where; no goroutine is left, and nothing writes to
// gradients any more. The rank that fails does not wait for those that come late.
//
// In steady state a step allocates nothing.
//
// # Conventions
//
// Everything here is collective, unless it says otherwise: all ranks of the group call it, in the same order. Between Begin and Finish the
// Comm is the DDP's, and all methods but Finish and Close panic. What a rank does between collectives must not depend on
// anything that only it knows. An error means that the group is no longer in step, and the run must end. A DDP is used by one goroutine
// at a time.
//
// # Limits
//
// Gradients are float32. A step has one Backward between Begin and Finish; more before it are added to the same mean. With FindUnused
// buckets keep the order that was guessed, and a parameter that no rank has used in a step may still get what an int8 or PowerSGD Hook owes
// it. All ranks take equally many steps, each with a Forward and a Backward: a rank whose rows have ended makes them with zero rows. Means
// are over all ranks of the group: scale the loss by the rows of the step.
package ddp
