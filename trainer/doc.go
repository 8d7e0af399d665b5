// Package trainer is the built-in trainer: data-parallel training of small models on CPUs,
// by PyTorch's conventions and with PyTorch's numbers.
//
// Every rank of a process group calls [Run] with the same [Config]; loop.go shows what
// happens then, from top to bottom:
//
//	cfg := trainer.DefaultConfig()
//	cfg.Data.Kind, cfg.Data.Images, cfg.Data.Labels = "mnist", "images.gz", "labels.gz"
//	result, err := trainer.Run(ctx, cfg, trainer.Env{Comm: comm, Checkpoints: dir, EverySteps: 200, Resume: true})
//
// In a step each rank computes gradients from its next rows of the epoch's order, and averages them with all other ranks, bucket by
// bucket, while backward continues (package ddp); then all ranks take the same optimizer step. So N ranks with batches
// of B train as one rank with batches of N B does. The order of rows is that of torch's DistributedSampler with set_epoch.
//
// An engine computes gradients. There are three: a replica of the model, several of them in one process (mode "dp",
// torch's DataParallel), and a stage of a pipeline, whose layers are split over ranks. The loop treats them alike.
//
// # Guarantees
//
// A run is a function of its Config, its data, the number of ranks, the kind of CPU, and the library for matrix products with its number
// of threads: with the same of these it ends with the same bytes, whatever the transport, the sizes of buckets and the layout of ranks. So
// does a run that was stopped, after any step, and resumed from its checkpoint. With another number of ranks a run continues after the last
// row that was trained on, so that no row of the epoch is left out, and with data.remainder "uneven" no row is used twice. A checkpoint of
// another model, of other data or with other relevant settings is refused with [ErrMismatch].
//
// All ranks end together, with the same result, or each with an error: its own, or that of another rank.
// A request to stop, on any rank, ends all after the same step. It is noticed at the end of a
// step, about once a second during an evaluation, and with local SGD only when the ranks average. A checkpoint never holds a number that is
// not finite: a loss that is not finite ends the run with [ErrDiverged], which names the step and the layer.
//
// Once the largest batch has been seen, a step does not allocate.
//
// # Checkpoints
//
// All ranks save together, each its part of the state (checkpoint/distributed). With Env.Async training continues meanwhile, and a
// copy is saved. A save that fails in the background ends training, on all ranks, when the next save is due; if that is
// the last one, at a stop or the end, it is made all the same. Run returns once everything is committed.
//
// # Lines for people and programs
//
// Each rank prints, at an epoch's start, its batch size and number of steps. Rank 0 prints, every Env.Every and at the epoch's end, the
// mean of the steps' losses, the throughput of all ranks, the share of time in which it only communicated and the share of communication
// that overlapped. If the job evaluates, it also prints the loss on the evaluation rows and, for classes, the accuracy:
//
//	rank 0 | epoch 0 | batch size 32 | steps 32
//	rank 0 | epoch 0 | loss 0.1234 | samples/s 12345 | communication 3.1 % | overlap 88 % | eval loss 0.2104 | accuracy 93.20 %
//
// Rank 0 writes a line of metrics, a JSON object, every 10 steps, at an epoch's end, and before a stop. Their keys: time attempt step steps
// epoch loss lr samples_per_s comm_share overlap left_s, epoch_loss at an epoch's end, and eval_loss and accuracy after an evaluation;
// save_s save_stall_s save_bytes save_ratio save_wait_s save_copy_s save_encode_s save_write_s save_sync_s save_commit_s after a
// checkpoint; resume_step resume_find_s resume_load_s resume_bytes in the first line after a resume.
// At its end rank 0 prints what checkpoints have cost, and how often to save.
//
// # Limits
//
// Everything runs on CPUs, in float32 except for the factors of matrix products. Only matrix products and mode "dp" use several cores of a
// rank; otherwise start as many ranks as there are cores. A pipeline computes all micro-batches forward, then all backward: its ranks are
// idle while it fills and drains.
package trainer
