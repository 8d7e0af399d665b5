// Command rank is the smallest program with package mpi: it joins the world that its launcher describes and meets the others in a barrier,
// and rank 0 prints a line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ddpbatch/mpi"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	comm, err := mpi.InitEnv(ctx, os.LookupEnv, mpi.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := comm.Barrier(ctx); err != nil {
		return err
	}
	if comm.Rank() == 0 {
		fmt.Println("met")
	}
	return nil
}
