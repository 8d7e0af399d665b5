package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"ddpbatch/scripts/bench/internal/tools"
)

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/gloo.py
var glooSource []byte

// prepare builds what is to be launched, in dir; ours comes first. It names everything that is missing at
// once.
func prepare(ctx context.Context, dir string, o options) ([]side, error) {
	program, version, err := tools.Ddpbatch(ctx, dir, o.program)
	if err != nil {
		return nil, err
	}
	sides := []side{ours(program, version, false)}
	if o.alloc {
		sides = append(sides, ours(program, "", true))
	}
	for name, source := range map[string][]byte{"mpi.c": mpiSource, "gloo.py": glooSource} {
		if err := os.WriteFile(filepath.Join(dir, name), source, 0o600); err != nil {
			return nil, fmt.Errorf("write a peer's program: %w", err)
		}
	}
	err = tools.EachPeer(o.peers, func(peer string) error {
		s, err := preparePeer(ctx, dir, peer)
		sides = append(sides, s)
		return err
	})
	return sides, err
}

func preparePeer(ctx context.Context, dir, peer string) (side, error) {
	switch peer {
	case "openmpi":
		program, err := tools.CompileMPI(ctx, filepath.Join(dir, "mpi.c"), peer)
		return openMPI(program, tools.FirstLine(ctx, "mpirun.openmpi", "--version")), err
	case "mpich":
		program, err := tools.CompileMPI(ctx, filepath.Join(dir, "mpi.c"), peer)
		return mpich(program, tools.FirstLine(ctx, "mpichversion")), err
	}
	python, version, err := tools.FindTorch(ctx)
	return gloo(python, filepath.Join(dir, "gloo.py"), version), err
}
