package trainer

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

// pairOf is two ranks in this process.
func pairOf(t *testing.T, timeout time.Duration) []*mpi.Comm {
	t.Helper()
	cfg := mpi.DefaultConfig()
	cfg.Timeout = timeout
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(2), mpi.InitConfig{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range comms {
			c.Close()
		}
	})
	return comms
}

// TestPeersTakeTurns: messages arrive whole and in their order, both ways at once, and nobody is ahead of a receiver by more than one.
func TestPeersTakeTurns(t *testing.T) {
	t.Parallel()
	comms := pairOf(t, time.Minute)
	var sent [2]chan int
	for i := range sent {
		sent[i] = make(chan int, 100)
	}
	message := func(from, i int) []byte { return bytes.Repeat([]byte{byte(from<<7 | i)}, 1+i*1000) }
	err := errors.Join(testkit.Each(2, func(rank int) error {
		p, err := newPeers(t.Context(), comms[rank])
		if err != nil {
			return err
		}
		other := 1 - rank
		return errors.Join(testkit.Each(2, func(side int) error {
			for i := range 20 {
				if side == 0 {
					if err := p.Send(t.Context(), other, message(rank, i)); err != nil {
						return err
					}
					sent[rank] <- i
					continue
				}
				if n := len(sent[other]); n > i {
					t.Errorf("%d messages are sent, of which rank %d has asked for %d", n, rank, i)
				}
				buf := make([]byte, 20000)
				n, err := p.Recv(t.Context(), other, buf)
				if err != nil {
					return err
				}
				if !bytes.Equal(buf[:n], message(other, i)) {
					t.Errorf("message %d has %d bytes, or others than were sent", i, n)
				}
			}
			return nil
		})...)
	})...)
	if err != nil {
		t.Fatal(err)
	}
}

// TestSlowPeer: a partner does not come for longer than the ranks wait for each other. That ends the copying on both, and nothing else.
func TestSlowPeer(t *testing.T) {
	synctest.Test(t, testSlowPeer) // by whose clock the ranks wait for nothing else
}

func testSlowPeer(t *testing.T) {
	comms := pairOf(t, time.Second)
	gaveUp := make(chan struct{})
	errs := testkit.Each(2, func(rank int) error {
		p, err := newPeers(t.Context(), comms[rank])
		if err != nil {
			return err
		}
		if rank == 0 {
			defer close(gaveUp)
			return p.Send(t.Context(), 1, []byte("a shard"))
		}
		<-gaveUp
		for err == nil { // what came before the end can still be received
			_, err = p.Recv(t.Context(), 0, make([]byte, 10))
		}
		return err
	})
	for rank, err := range errs {
		if !errors.Is(err, mpi.ErrTimeout) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	err := errors.Join(testkit.Each(2, func(rank int) error { return comms[rank].Barrier(context.Background()) })...)
	if err != nil {
		t.Errorf("training cannot go on: %v", err)
	}
}
