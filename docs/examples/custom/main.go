// Command custom trains a small classifier with ddpbatch's packages, as a script with torch.nn, torch.optim and
// DistributedDataParallel would. train.go has the training loop, model.go a module written by hand, spirals.go a data set, and
// checkpoint.go the code that saves and restores. docs/go-trainer.md explains it step by step.
//
// From the root of the repository:
//
//	go build -o custom ./docs/examples/custom
//	./custom                                                            # one rank
//	ddpbatch run --standalone --nproc-per-node 2 -- ./custom            # two on this machine
//	ddpbatch simulate --nodes 2 --nproc-per-node 1 -- ./custom          # on two pretend nodes
//	srun --ntasks-per-node=4 ddpbatch run -- ./custom -save spirals.safetensors
//
// Without a launcher the ranks find each other by an init method, as in torch.distributed, and prove that they know the same secret. Rank 0
// of two:
//
//	export CUSTOM_SECRET=$(openssl rand -hex 32)                        # the same for all ranks
//	./custom -init 'tcp://node0:29500?rank=0&world_size=2'              # rank 0 serves a store there
//	./custom -init 'file:///shared/spirals?rank=0&world_size=2' -listen 10.0.0.1   # or through a file that does not exist before
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"ddpbatch/mpi"
)

func main() {
	o := options{lr: 0.01, batch: 32, accumulate: 2, seed: 1}
	flag.IntVar(&o.epochs, "epochs", 20, "number of passes over the data")
	flag.StringVar(&o.save, "save", "", "write the trained model to this `file`.safetensors")
	flag.StringVar(&o.folder, "checkpoints", os.Getenv("DDPBATCH_CHECKPOINT_DIR"),
		"save to this `folder`, and resume from the newest checkpoint in it")
	flag.StringVar(&o.init, "init", "", "find the other ranks by this init `method`, such as tcp://node0:29500?rank=0&world_size=2")
	flag.StringVar(&o.listen, "listen", "", "with -init file://, the IP `address` at which the other ranks reach this one")
	flag.Parse()
	signal.Notify(stopped, syscall.SIGTERM, os.Interrupt) // otherwise TERM or Ctrl-C would end this rank before it saves
	o.save = os.ExpandEnv(o.save)                         // in a job, $DDPBATCH_RUN_DIR/spirals.safetensors
	err := run(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "custom:", err)
	}
	switch {
	case errors.Is(err, errStopped):
		os.Exit(exitSaved)
	case err != nil:
		os.Exit(1)
	}
}

// exitSaved is the exit code with which a rank that has saved asks to be started again.
const exitSaved = 75

// run joins the other ranks, as init_process_group does, and trains.
func run(ctx context.Context, o options) (err error) {
	comm, err := join(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := train(ctx, comm, o); err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), err)
	}
	return nil
}

// join joins the other ranks by an init method, or those that a launcher has started. Without either it is a world of one rank.
func join(ctx context.Context, o options) (*mpi.Comm, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if o.init != "" {
		secret, err := mpi.ParseSecret(os.Getenv("CUSTOM_SECRET"))
		if err != nil {
			return nil, fmt.Errorf("CUSTOM_SECRET: %w", err)
		}
		return mpi.InitMethod(ctx, o.init, mpi.InitConfig{
			Listen: o.listen, Run: "custom", Attempt: 1, Secret: secret, Config: mpi.DefaultConfig(), Log: log,
		})
	}
	if _, launched := os.LookupEnv("RANK"); !launched {
		return mpi.Self(), nil
	}
	return mpi.InitEnv(ctx, os.LookupEnv, mpi.DefaultConfig(), log)
}
