// Package trainer is the built-in trainer: data-parallel training of small models on CPUs,
// by PyTorch's conventions and with PyTorch's numbers.
//
// Every rank of a process group calls [Run] with the same [Config]; loop.go is what
// happens then, from top to bottom:
//
//	cfg := trainer.DefaultConfig()
//	cfg.Data.Kind, cfg.Data.Images, cfg.Data.Labels = "mnist", "images.gz", "labels.gz"
//	result, err := trainer.Run(ctx, cfg, trainer.Env{Comm: comm, Checkpoints: dir, EverySteps: 200, Resume: true})
//
// In a step each rank takes its next batch_size rows of the epoch's order, computes gradients, and averages
// them with all other ranks in one all-reduce; then all take the same optimizer step. So N ranks with batches
// of B train as one rank with batches of N B does. The order of rows is that of torch's DistributedSampler with set_epoch:
// where rows do not divide evenly, the first of the order are repeated.
//
// # Guarantees
//
// A run is a function of its Config, its data and the number of ranks: run again on machines of the same kind, it ends with
// the same bytes, whatever their number of cores. So does one that was stopped, after whatever step, and resumed from its checkpoint. A checkpoint that
// would break this promise is refused with [ErrMismatch].
//
// All ranks end together, with the same result, or each with an error: its own, or that of the rank
// that has one. A request to stop, on any rank, ends all after the same step; it is noticed at the end of a
// step, not during an evaluation. No checkpoint ever holds a number that is not finite.
//
// # Lines for people and programs
//
// Each rank prints, at an epoch's start, its batch size and number of steps; rank 0, at its end, the mean of the steps' losses, the
// throughput of all ranks and, where the job evaluates, accuracy or loss on the evaluation rows:
//
//	rank 0 | epoch 0 | batch size 32 | steps 32
//	rank 0 | epoch 0 | loss 0.1234 | samples/s 12345 | accuracy 93.20 %
//
// Rank 0 writes a line of metrics, a JSON object, every 10 steps and at an epoch's end, and before a
// stop. Their keys: time attempt step steps epoch loss lr samples_per_s comm_share, and
// eval_loss and accuracy after an evaluation.
//
// # Limits
//
// Models are MLPs, data are MNIST's files or generated, the optimizer is SGD with momentum. A rank computes on one core:
// start as many ranks as there are cores. A resume needs the same number of ranks.
package trainer
