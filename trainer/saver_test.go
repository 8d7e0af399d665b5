package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

// encoding matches the function in the stack of a goroutine that encodes.
var encoding = regexp.MustCompile(`/shard\.\(\*\w+\)\.work\(`)

// Rank 0 encodes with at most as many goroutines as it has threads and as its memory has room for, whatever the options of the folder.
func TestRank0EncodesWithinItsThreadsAndMemory(t *testing.T) { // without the race detector
	for name, test := range map[string]struct {
		threads int
		memory  int64
		want    int
	}{
		"one thread":                {1, 0, 1},
		"three threads":             {3, 0, 3},
		"memory for two of three":   {3, 11 << 20, 2},
		"memory for one of three":   {3, 6 << 20, 1},
		"memory for more than that": {3, 1 << 30, 3},
	} {
		c, most := newCheckpoints(), 0
		stacks := make([]byte, 1<<20)
		looked := checkpoints{vfstest.NewInjector(c.fs, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "write" && strings.Contains(op.Path, "shard") {
				all := stacks[:runtime.Stack(stacks, true)]
				most = max(most, len(encoding.FindAll(all, -1)))
			}
			return vfstest.Fault{}
		})}
		cfg := small(1, 1, 1)
		cfg.Model.Hidden = []int{250_000} // 12 MB with momentum, more batches of 1 MiB than are encoded at a time
		mustTrain(t, 1, cfg, func(_ int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.Threads, env.MaxMemory = looked.open(t), looked.fs, test.threads, test.memory
		})
		if most < 1 || most > test.want { // there may be fewer, since goroutines that were not scheduled yet are not seen
			t.Errorf("%s: %d goroutines encode, want at most %d", name, most, test.want)
		}
	}
}

// Too little memory to encode with one thread ends a run on all ranks before its first step. The error says how much is enough.
func TestTooLittleMemoryToEncodeEndsTheRun(t *testing.T) {
	// With int8 the residuals need memory, too, since they are copied.
	for compress, want := range map[string]string{"none": "checkpoint.memory to 6M", "int8": "checkpoint.memory to 7M"} {
		c := newCheckpoints()
		for rank, r := range train(t, 2, small(2, 1, 5), func(rank int, cfg *Config, env *Env) {
			cfg.DDP.Compress = compress
			env.Checkpoints, env.FS = c.open(t), c.fs
			if rank == 1 {
				env.MaxMemory = 6<<20 - 1
			}
		}) {
			if r.err == nil || !strings.Contains(r.err.Error(), want) || strings.Contains(r.err.Error(), "rank 1: ") != (rank == 0) {
				t.Errorf("%s: rank %d: %v; want %q", compress, rank, r.err, want)
			}
		}
		if got := c.steps(t); len(got) != 0 {
			t.Errorf("%s: checkpoints of steps %v", compress, got)
		}
	}
	// Without compression there is nothing to encode.
	c := newCheckpoints()
	dir, err := checkpoint.Open("checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: 1, Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	mustTrain(t, 1, small(1, 1, 5), func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.MaxMemory = dir, c.fs, 1<<20 })
}

// Messages of any length, also empty ones, arrive unchanged and in the order of ranks.
func TestGroupCarriesBytes(t *testing.T) {
	message := func(rank, length int) []byte { return bytes.Repeat([]byte{byte(rank + 1)}, length*rank) }
	for _, err := range onRanks(t, "local", 4, func(ctx context.Context, comm *mpi.Comm) error {
		g, err := newSaveGroup(ctx, comm)
		if err != nil {
			return err
		}
		for _, length := range []int{0, 1, 100_000} {
			all, err := g.Gather(ctx, message(g.Rank(), length))
			if err != nil {
				return err
			}
			if g.Rank() != 0 && all != nil || g.Rank() == 0 && len(all) != 4 {
				return fmt.Errorf("rank %d has %d messages", g.Rank(), len(all))
			}
			for rank, got := range all {
				if !bytes.Equal(got, message(rank, length)) {
					return fmt.Errorf("%d bytes of rank %d are not what it sent", len(got), rank)
				}
			}
			got, err := g.Broadcast(ctx, message(3-g.Rank(), length)) // rank 0 has the longest message
			if err != nil {
				return err
			}
			if !bytes.Equal(got, message(3, length)) {
				return fmt.Errorf("rank %d got %d bytes", g.Rank(), len(got))
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// pairOf returns the Comms of two ranks in this process.
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

// Messages between two peers arrive whole and in order, in both directions at once. A sender is at most one message ahead of the receiver.
func TestPeersTakeTurns(t *testing.T) {
	t.Parallel()
	comms := pairOf(t, time.Minute)
	var sent [2]chan int
	for i := range sent {
		sent[i] = make(chan int, 100)
	}
	message := func(from, i int) []byte { return bytes.Repeat([]byte{byte(from<<7 | i)}, 1+i*1000) }
	err := errors.Join(testkit.Each(2, func(rank int) error {
		p, err := newShardPeers(t.Context(), comms[rank])
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

// If a peer is slower than the timeout of the Comm, copying ends on both ranks. Nothing else ends.
func TestSlowPeerEndsOnlyTheCopying(t *testing.T) {
	synctest.Test(t, testSlowPeer) // by its clock nothing else can take so long
}

func testSlowPeer(t *testing.T) {
	comms := pairOf(t, time.Second)
	gaveUp := make(chan struct{})
	errs := testkit.Each(2, func(rank int) error {
		p, err := newShardPeers(t.Context(), comms[rank])
		if err != nil {
			return err
		}
		if rank == 0 {
			defer close(gaveUp)
			return p.Send(t.Context(), 1, []byte("a shard"))
		}
		<-gaveUp
		for err == nil { // what was sent before the end can still be received
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
