package mpi

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// Init makes this process rank cfg.Rank of a group of cfg.Size. It returns when
// every rank has been connected to every other.
//
// It gives up when ctx ends, or after cfg.Config.Timeout; the error is then a
// [transport.MissingError], which names the ranks that were not met. A rank
// with another secret, run or attempt is refused, and logged; one with another Size, or of a number
// that is there already, gives up at once.
//
// A store serves one group of an attempt: give further ones a store.Prefix of it.
func Init(ctx context.Context, cfg InitConfig) (*Comm, error) {
	c, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("init rank %d of %d: %w", cfg.Rank, cfg.Size, err)
	}
	return c, nil
}

func connect(ctx context.Context, cfg InitConfig) (*Comm, error) {
	if !littleEndian() {
		return nil, errors.New("this machine is big-endian; ranks exchange little-endian memory")
	}
	if err := cfg.Config.Validate(); err != nil {
		return nil, err
	}
	if cfg.Size == 1 && cfg.Rank == 0 {
		return Self(), nil
	}
	timeout := cfg.Config.timeout()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mesh, err := transport.ConnectTCP(ctx, transport.Config{
		Rank: cfg.Rank, Size: cfg.Size, Listen: cfg.Listen,
		Directory: store.Prefix(cfg.Store, fmt.Sprintf("mpi/%d", cfg.Attempt)),
		Secret:    cfg.Secret, Run: cfg.Run, Attempt: cfg.Attempt,
		Timeout: timeout, Describe: describe, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	c := newComm(mesh)
	// Every mesh begins in the same call, number 0, so this needs no Begin.
	if err := c.disseminate(ctx); err != nil {
		mesh.Close()
		return nil, fmt.Errorf("wait until all ranks are connected: %w", err)
	}
	return c, nil
}

func newComm(mesh transport.Mesh) *Comm {
	return &Comm{mesh: mesh, scratch: make([]uint64, frameBytes/8)}
}
