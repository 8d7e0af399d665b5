package mpi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// A caller of the package can distinguish a rank that violates the protocol from one that is lost.
func TestProtocolErrorIsNotALoss(t *testing.T) {
	network := transport.NewNetwork(2)
	own, err := network.Fabric(0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := network.Fabric(1)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Control(0).Write(make([]byte, 48), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := join(t.Context(), own, InitConfig{Config: DefaultConfig()}); !errors.Is(err, ErrProtocol) {
		t.Errorf("it is %v, which is not ErrProtocol", err)
	}
}

// Backend describes the group: a part of the group can have another back-end.
func TestBackend(t *testing.T) {
	const size = 4
	for over, want := range map[string]struct{ all, neighbours, across string }{
		"local":    {"local", "local", "local"},
		"tcp":      {"tcp", "tcp", "tcp"},
		"shm":      {"shm", "shm", "shm"},
		"machines": {"shm+tcp", "shm", "tcp"}, // the pairs are ranks 0 and 1, and ranks 2 and 3
	} {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, size, nil)
			must(t, testkit.Each(size, func(rank int) error {
				neighbours, err := w[rank].Split(t.Context(), rank/2, 0)
				if err != nil {
					return err
				}
				across, err := w[rank].Split(t.Context(), rank%2, 0)
				if err != nil {
					return err
				}
				single, err := w[rank].Split(t.Context(), rank, 0)
				if err != nil {
					return err
				}
				for _, tt := range []struct {
					what string
					c    *Comm
					want string
				}{
					{"the world", w[rank], want.all}, {"neighbours", neighbours, want.neighbours},
					{"one rank of each pair", across, want.across},
					{"one rank", single, "self"}, {"another algorithm", w[rank].Using("ring"), want.all},
				} {
					if got := tt.c.Backend(); got != tt.want {
						err = errors.Join(err, fmt.Errorf("%s: the back-end is %q, want %q", tt.what, got, tt.want))
					}
				}
				return err
			}))
		})
	}
	if got := Self().Backend(); got != "self" {
		t.Errorf("of a world of one it is %q", got)
	}
}

// A Comm is initialized until it is closed or broken, on all of its ranks. A nil Comm is not initialized.
func TestIsInitialized(t *testing.T) {
	if (*Comm)(nil).IsInitialized() {
		t.Error("no Comm is initialized")
	}
	self := Self()
	if !self.IsInitialized() {
		t.Error("a world of one is not initialized")
	}
	if err := self.Close(); err != nil {
		t.Error(err)
	}
	if self.IsInitialized() {
		t.Error("a world of one is initialized after Close")
	}

	const size = 3
	w := newWorldOn(t, "tcp", size, nil)
	must(t, testkit.Each(size, func(rank int) error {
		child, err := w[rank].Dup(t.Context())
		if err != nil {
			return err
		}
		if !w[rank].IsInitialized() || !child.IsInitialized() {
			return errors.New("it is not initialized")
		}
		// The child breaks on all ranks, and its parent still works.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if rank == 0 {
			cancel()
		}
		if err := child.Barrier(ctx); err == nil {
			return errors.New("a barrier that a rank did not come to has ended well")
		}
		if child.IsInitialized() || !w[rank].IsInitialized() {
			return fmt.Errorf("initialized: the broken one %v, and its parent %v", child.IsInitialized(), w[rank].IsInitialized())
		}
		return w[rank].Barrier(t.Context())
	}))
}
