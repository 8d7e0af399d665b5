// Command custom trains a small classifier of its own with ddpbatch's packages, as a script with torch.nn, torch.optim and
// DistributedDataParallel does. train.go is the loop; model.go has a module written by hand, and spirals.go a data set.
//
// From the root of the repository:
//
//	go build -o custom ./docs/examples/custom
//	./custom                                                            # one rank
//	ddpbatch run --standalone --nproc-per-node 2 -- ./custom            # two on this machine
//	ddpbatch simulate --nodes 2 --nproc-per-node 1 -- ./custom          # on two pretend nodes
//	srun --ntasks-per-node=4 ddpbatch run -- ./custom -save spirals.safetensors
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"ddpbatch/mpi"
)

func main() {
	o := options{lr: 0.01, batch: 32, accumulate: 2, seed: 1}
	flag.IntVar(&o.epochs, "epochs", 20, "times through the data")
	flag.StringVar(&o.save, "save", "", "write the trained model to this `file`.safetensors")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "custom:", err)
		os.Exit(1)
	}
}

// run joins the other ranks, as init_process_group does, and trains.
func run(ctx context.Context, o options) (err error) {
	comm, err := join(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := train(ctx, comm, o); err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), err)
	}
	return nil
}

// join meets the ranks that a launcher has started, or is a world of one where there is none.
func join(ctx context.Context) (*mpi.Comm, error) {
	if _, launched := os.LookupEnv("RANK"); !launched {
		return mpi.Self(), nil
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return mpi.InitEnv(ctx, os.LookupEnv, mpi.DefaultConfig(), log)
}
