package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/mpi"
	"ddpbatch/trainer/blas"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/ddp"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

type options struct {
	epochs     int
	lr         float64
	batch      int // rows of one pass of a rank
	accumulate int // passes per step
	seed       uint64
	save       string
	folder     string // of checkpoints; empty: none
	init       string // an init method; empty: the launcher's environment, if there is one
	listen     string // the address to listen on, for an init method that does not determine it
}

// saveEvery is the number of epochs between checkpoints.
const saveEvery = 5

// train is one rank of the training. All ranks must make the calls marked as collective, in the same order, or they wait for each other.
func train(ctx context.Context, comm *mpi.Comm, o options) error {
	rows := newSpirals(3072, o.seed)
	sampler, err := data.NewDistributedSampler(data.SamplerConfig{
		Rows: rows.Len(), World: comm.Size(), Rank: comm.Rank(), Seed: o.seed, Shuffle: true,
	})
	if err != nil {
		return err
	}
	loader := data.NewLoader(rows, 2)
	defer loader.Close()

	// Each rank starts with its own values, which New replaces with those of rank 0. Collective.
	model := newModel(rows.Spec(), rand.New(rand.NewPCG(o.seed, uint64(comm.Rank()))))
	replica, err := ddp.New(ctx, comm, model.Params(), model.Buffers(), ddp.DefaultConfig())
	if err != nil {
		return err
	}
	defer replica.Close()
	optimizer, err := optim.New(model.Params(), optim.Default("adamw"))
	if err != nil {
		return err
	}
	// Parameters, running statistics and the optimizer's state are restored before the first step. Collective.
	saves, err := newSaver(comm, o.folder, model, optimizer)
	if err != nil {
		return err
	}
	step, err := saves.restore(ctx)
	if err != nil {
		return err
	}
	steps := ceil(ceil(sampler.Len(), o.batch), o.accumulate) // of an epoch, on every rank: the sampler gives all the same number of rows
	all := int64(o.epochs * steps)                            // steps of the whole run
	if step > 0 && comm.Rank() == 0 {
		fmt.Printf("resumed at step %d of %d\n", step, all)
	}
	schedule, err := optim.NewSchedule(optim.ScheduleConfig{Kind: "one_cycle", Steps: all}, o.lr)
	if err != nil {
		return err
	}
	library, _, err := blas.Open(blas.Config{Library: blas.Auto})
	if err != nil {
		return err
	}

	pass := &nn.Pass{Training: true, BLAS: library}
	var criterion nn.CrossEntropy
	var sums [3]float64 // loss, rows, and ranks that are asked to stop, over all passes of a step and all ranks
	for epoch := int(step) / steps; epoch < o.epochs; epoch++ {
		done := int(step) % steps // steps of this epoch that were taken before the checkpoint
		sampler.SetEpoch(epoch, done*o.accumulate*o.batch*comm.Size())
		loader.Begin(sampler.Indices(), o.batch)
		batches := ceil(sampler.Len(), o.batch)
		var loss, seen float64
		for i := range batches {
			first, last := i%o.accumulate == 0, (i+1)%o.accumulate == 0 || i+1 == batches
			if first {
				replica.ZeroGrad()
				if err := replica.SyncBuffers(ctx); err != nil { // collective: copies rank 0's running statistics to all ranks
					return err
				}
				clear(sums[:])
			}
			b := loader.Next()
			value, dy := criterion.Loss(model.Forward(pass, inputs(b)), b.Labels)
			scale(dy, 1/float32(o.accumulate))
			sums[0] += value * float64(b.Rows)
			sums[1] += float64(b.Rows)
			if !last {
				model.Backward(pass, dy, false) // no_sync: the gradients accumulate on this rank
				continue
			}
			if stopRequested() { // only this rank is asked; all ranks stop after the same step
				sums[2] = 1
			}
			replica.Begin(ctx, pass, sums[:]) // collective: buckets are averaged while Backward continues
			model.Backward(pass, dy, false)
			if err := replica.Finish(); err != nil {
				return err
			}
			optimizer.SetLR(schedule.LR(step))
			optimizer.Step()
			step++
			loss += sums[0]
			seen += sums[1]
			if comm.Rank() == 0 && (step%10 == 0 || step == all) {
				if err := report(step, all, loss/seen); err != nil {
					return err
				}
			}
			if sums[2] > 0 { // the sum is the same on all ranks, so all of them come here
				return cmp.Or(saves.save(ctx, step), errStopped) // collective
			}
		}
		if comm.Rank() == 0 {
			fmt.Printf("epoch %2d | loss %.4f\n", epoch, loss/seen)
		}
		if (epoch+1)%saveEvery == 0 || epoch+1 == o.epochs {
			if err := saves.save(ctx, step); err != nil { // collective
				return err
			}
		}
	}

	if err := replica.SyncBuffers(ctx); err != nil {
		return err
	}
	right, err := evaluate(ctx, comm, model, &nn.Pass{BLAS: library}, newSpirals(1000, o.seed+1))
	if err != nil || comm.Rank() != 0 {
		return err
	}
	ranks := "1 rank"
	if comm.Size() > 1 {
		ranks = fmt.Sprintf("%d ranks", comm.Size())
	}
	fmt.Printf("%s | accuracy %.1f %%\n", ranks, 100*right)
	return save(o.save, model)
}

// evaluate returns the share of rows that the model gets right. It is collective: each rank evaluates every Size-th row.
func evaluate(ctx context.Context, comm *mpi.Comm, model nn.Module, pass *nn.Pass, rows data.Dataset) (float64, error) {
	var own []int
	for i := comm.Rank(); i < rows.Len(); i += comm.Size() {
		own = append(own, i)
	}
	var b data.Batch
	b.Fill(rows, own)
	logits := model.Forward(pass, inputs(&b))
	right := []float64{0}
	for i, label := range b.Labels {
		if nn.Argmax(logits.Row(i)) == label {
			right[0]++
		}
	}
	err := mpi.AllReduce(ctx, comm, right, mpi.Sum)
	return right[0] / float64(rows.Len()), err
}

// save writes parameters and running statistics under the names that torch.nn gives them. With an empty path it does nothing.
func save(path string, model nn.Module) error {
	if path == "" {
		return nil
	}
	var tensors []checkpoint.Tensor
	for _, p := range model.Params() {
		tensors = append(tensors, checkpoint.Float32Tensor(p.Name, p.Shape, p.Value))
	}
	for _, b := range model.Buffers() {
		tensors = append(tensors, checkpoint.Float32Tensor(b.Name, b.Shape, b.Value))
	}
	return safetensors.Write(path, tensors, safetensors.Metadata{{Key: "format", Value: "pt"}})
}

// inputs returns the rows of b. There may be none: if there are more ranks than rows, some ranks have nothing to evaluate.
func inputs(b *data.Batch) nn.Matrix {
	return nn.Matrix{Rows: b.Rows, Cols: columns, Data: b.X}
}

func scale(m nn.Matrix, factor float32) {
	for i := range m.Data {
		m.Data[i] *= factor
	}
}

func ceil(a, b int) int { return (a + b - 1) / b }
