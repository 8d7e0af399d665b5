package mpi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// InitMethod is Init with a store that is named as in PyTorch's init methods:
//
//	tcp://HOST:PORT   rank 0 serves a store at this address for the other ranks
//	file:///PATH      a file that all ranks can reach, and that does not exist before
//
// Either may end in ?rank=R&world_size=N; otherwise cfg.Rank and cfg.Size are used. With tcp://, cfg.Listen may be empty: it defaults to
// the address from which this rank reaches the store. For env:// use InitEnv. Close also closes the store.
func InitMethod(ctx context.Context, method string, cfg InitConfig) (*Comm, error) {
	if err := cfg.Config.Validate(); err != nil {
		return nil, fmt.Errorf("init by %s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Config.timeout())
	defer cancel()
	opened, err := store.Open(ctx, method, store.OpenConfig{
		Rank: cfg.Rank, WorldSize: cfg.Size, Secret: cfg.Secret, Log: cfg.Log,
		Binding: auth.Binding{Run: cfg.Run, Attempt: cfg.Attempt, Role: "store"},
	})
	if err != nil {
		return nil, fmt.Errorf("init by %s: %w", method, err)
	}
	cfg.Rank, cfg.Size, cfg.Store = opened.Rank, opened.WorldSize, opened
	if cfg.Listen == "" {
		cfg.Listen, err = addressOf(opened.Store)
	}
	var c *Comm
	if err == nil {
		c, err = Init(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("init by %s: %w", method, err), opened.Close())
	}
	c.core.world.initStore = &initStore{store: opened, close: opened.Close, abandon: opened.Close}
	return c, nil
}

// addressOf returns this machine's address on the route to a store.
func addressOf(s store.Store) (string, error) {
	var text string
	switch s := s.(type) {
	case *store.Client:
		text = s.LocalAddr().String()
	case *store.Server:
		text = s.Addr().String()
	default:
		return "", errors.New("Listen is not set: set it to the address at which the other ranks reach this one")
	}
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return "", fmt.Errorf("find the address that reaches the store: %w", err)
	}
	return addr.Addr().Unmap().String(), nil
}
