package mpi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/model"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// If a rank is cut off during the first timed messages, which have 512 KiB, Init fails on all ranks, and the others name that rank.
func TestCutWhileMessagesAreTimedIsNoticed(t *testing.T) {
	const size, victim = 4, 0 // higher ranks dial lower ones, and rank 0 times messages with the last one
	var r relay
	r.cutAfter(100_000) // all traffic before those messages is shorter
	s := store.NewMemory()
	defer s.Close()
	var errs []error
	testkit.Within(t, testkit.Patience, func() {
		errs = testkit.Each(size, func(rank int) error {
			cfg := testConfig(s, rank, size)
			cfg.Config.Transport = "tcp"
			if rank == victim {
				cfg.Store = relayed{Store: s, relay: &r}
			}
			c, err := Init(t.Context(), cfg)
			if err == nil {
				c.Close()
			}
			return err
		})
	})
	r.close()
	for rank, err := range errs {
		if !errors.Is(err, ErrLost) || rank != victim && !strings.Contains(err.Error(), "rank 0: connection lost") {
			t.Errorf("rank %d of which %d is cut off got %v", rank, victim, err)
		}
	}
}

// If a rank dies while it times messages with another, that other rank names it, and so do the ranks that wait for the costs.
func TestDeathWhileMessagesAreTimedIsNoticed(t *testing.T) {
	for _, victim := range []int{0, 1} {
		t.Run(fmt.Sprintf("rank_%d", victim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 4
				network := transport.NewNetwork(size)
				comms := newLocal(t, network, nil)
				const delay = time.Millisecond
				network.Delay(delay)
				time.AfterFunc(9*delay, func() { network.Kill(victim) }) // the warm-up, which does not count, takes 6 delays
				begun := time.Now()
				errs := testkit.Each(size, func(rank int) error {
					k := comms[rank].core
					if rank > 1 {
						_, err := k.allGatherBytes(t.Context(), []byte{1})
						return err
					}
					p := &prober{k: k, memory: make([]byte, 2*halfBytes)}
					return p.timeLink(t.Context(), 1, new(model.Costs))
				})
				if took := time.Since(begun); took > time.Second {
					t.Errorf("it took %v", took)
				}
				for rank, err := range errs {
					if rank == victim {
						continue
					}
					if err := blames(err, victim); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		})
	}
}

// A rank that does not respond while the others join is named after the time-out.
func TestRankThatStandsStillWhileOthersJoinIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, victim, timeout = 4, 2, time.Second
		network := transport.NewNetwork(size)
		network.Delay(time.Millisecond) // so that ranks have been joining for a while when they begin to wait for the victim
		for rank := range size {
			if rank != victim {
				network.Cut(rank, victim)
			}
		}
		begun := time.Now()
		_, err := initIn(t.Context(), network, func(cfg *InitConfig) { cfg.Config.Timeout = timeout })
		want := fmt.Sprintf("rank %d: no progress for %v: it does not answer", victim, timeout)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if took := time.Since(begun); took < timeout || took > 10*timeout {
			t.Errorf("it took %v", took)
		}
	})
}
