package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"ddpbatch/internal/testkit"
)

// All ranks send more to all others than the links hold, before they receive, again and again. An engine that waited for its receivers
// would deadlock. The sizes are around the limits of the reader's buffer.
func TestAllPairsExchangeMoreThanLinksHold(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		const size = 4
		for _, n := range []int{0, 1, headerSize, readBuffer - headerSize, readBuffer - headerSize + 1, readBuffer/2 + 1, 1 << 20} {
			w := newWorld(t, k, size, nil)
			w.each(func(rank int, g *Group) error {
				for seq := range 3 {
					if err := begin(g, Call{Seq: uint64(seq + 1)}); err != nil {
						return err
					}
					var sends, receives [size]Op
					var in [size][]byte
					for peer := range size {
						if peer == rank {
							continue
						}
						in[peer] = make([]byte, n)
						g.Send(&sends[peer], peer, pattern(rank*size+peer+seq, n))
						if seq == 0 {
							g.Recv(&receives[peer], peer, in[peer])
						}
					}
					for peer := range size {
						if peer == rank {
							continue
						}
						if seq > 0 {
							g.Recv(&receives[peer], peer, in[peer])
						}
						if err := errors.Join(g.Wait(t.Context(), &receives[peer]), g.Wait(t.Context(), &sends[peer])); err != nil {
							return err
						}
						if !bytes.Equal(in[peer], pattern(peer*size+rank+seq, n)) {
							t.Errorf("%d bytes, call %d: rank %d got something else of rank %d", n, seq, rank, peer)
						}
					}
					end(g)
				}
				return nil
			})
		}
	})
}

// Two ranks send each other far more than fits anywhere, and wait for the sends first.
func TestLargeMessagesPassBothWays(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		const n = 8<<20 + 5
		w.each(func(rank int, g *Group) error {
			var s, r Op
			in := make([]byte, n)
			g.SendMessage(&s, 1-rank, tag(1), pattern(rank, n))
			g.RecvMessage(&r, 1-rank, tag(1), in)
			if err := errors.Join(g.Wait(t.Context(), &s), g.Wait(t.Context(), &r)); err != nil {
				return err
			}
			if !bytes.Equal(in, pattern(1-rank, n)) {
				t.Errorf("rank %d got something else", rank)
			}
			return nil
		})
	})
}

// Messages of one tag arrive in the order in which they were sent. Messages of different tags arrive in the order of their receives,
// whether the messages or the receives come first.
func TestMessagesKeepTheOrderOfTheirTag(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		const messages, tags = 60, 3
		w.each(func(rank int, g *Group) error {
			if rank == 0 {
				for i := range messages {
					if err := send(t.Context(), g, 1, uint64(i%tags), pattern(i, i*i)); err != nil {
						return err
					}
				}
				return nil
			}
			for n := range tags {
				last := tags - 1 - n // the last tag first, so that the messages of the others come early
				for i := last; i < messages; i += tags {
					in := make([]byte, i*i+10) // a buffer may be longer than needed
					var op Op
					g.RecvMessage(&op, 0, tag(uint64(last)), in)
					if err := g.Wait(t.Context(), &op); err != nil {
						return err
					}
					if from, size := g.Source(&op); from != 0 || size != i*i || !bytes.Equal(in[:size], pattern(i, i*i)) {
						t.Errorf("message %d: %d bytes from rank %d", i, size, from)
					}
				}
			}
			return nil
		})
	})
}

// A receive from any rank takes each message once, and names the sender. If two receives could take a message, the one that was posted
// first gets it.
func TestReceiveFromAnyTakesEachMessageOnce(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		const size, each = 4, 20
		w := newWorld(t, k, size, nil)
		w.each(func(rank int, g *Group) error {
			if rank != 0 {
				for i := range each {
					if err := send(t.Context(), g, 0, 7, []byte{byte(rank), byte(i)}); err != nil {
						return err
					}
				}
				return nil
			}
			next := make([]int, size)
			for range each * (size - 1) {
				var op Op
				in := make([]byte, 2)
				g.RecvMessage(&op, Any, tag(7), in)
				if err := g.Wait(t.Context(), &op); err != nil {
					return err
				}
				from, _ := g.Source(&op)
				if int(in[0]) != from || int(in[1]) != next[from] {
					return fmt.Errorf("message %d of rank %d is said to be message %d of rank %d", in[1], in[0], next[from], from)
				}
				next[from]++
			}
			return nil
		})
	})
}

func TestReceivesFromAnyAndOneKeepOrder(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		var ops [4]Op
		var in [4][1]byte
		for i := range ops {
			from := 1
			if i%2 == 0 {
				from = Any
			}
			w.groups[0].RecvMessage(&ops[i], from, tag(1), in[i][:])
		}
		for i := range ops {
			if err := send(t.Context(), w.groups[1], 0, 1, []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range ops {
			if err := w.groups[0].Wait(t.Context(), &ops[i]); err != nil || in[i][0] != byte(i) {
				t.Errorf("receive %d got message %d, %v", i, in[i][0], err)
			}
		}
	})
}

// A receive that does not fit its message breaks the group with an error that says why, and writes no byte outside its buffer.
func TestReceiveThatDoesNotFit(t *testing.T) {
	tests := []struct {
		name   string
		label  Call // the label of the receive
		room   int
		reason error
		text   string
	}{
		{"longer", tag(1), 3, ErrTruncated, "message longer than the buffer: it has 4 bytes, the buffer has 3"},
		{"other_element", Call{Seq: 1, Element: 2}, 4, ErrMismatch,
			"Element:0 Op:0 Algorithm:0}, rank 1 called {Group:1 Seq:1 Count:0 Root:0 Collective:0 Element:2"},
	}
	for _, tt := range tests {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/early=%v", tt.name, early), func(t *testing.T) {
				overAll(t, func(t *testing.T, k kind) {
					w := newWorld(t, k, 2, nil)
					memory := make([]byte, 8)
					var r, s Op
					if early {
						w.groups[0].SendMessage(&s, 1, tag(1), []byte{1, 2, 3, 4})
						eventuallyEarly(t, w.engines[1], 1)
					}
					w.groups[1].RecvMessage(&r, 0, tt.label, memory[:tt.room])
					if !early {
						w.groups[0].SendMessage(&s, 1, tag(1), []byte{1, 2, 3, 4})
					}
					err := within(t, func() error { return w.groups[1].Wait(t.Context(), &r) })
					if !errors.Is(err, tt.reason) {
						t.Errorf("got %v, want %v", err, tt.reason)
					}
					wantText(t, err, tt.text)
					if !bytes.Equal(memory, make([]byte, 8)) {
						t.Errorf("the buffer became % x", memory)
					}
					err = within(t, func() error { return receive(context.Background(), w.groups[0], 1, 9, nil) })
					wantAbort(t, err, 1, 0, tt.reason)
				})
			})
		}
	}
}

// eventuallyEarly waits until an engine holds n messages that have no receive yet.
func eventuallyEarly(t testing.TB, e *Engine, n int) {
	t.Helper()
	testkit.Eventually(t, "messages are there", func() bool { return earlyMessages(e) == n })
}

// earlyMessages drives the links, and counts the whole messages that wait for their receive.
func earlyMessages(e *Engine) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
	n := 0
	for _, p := range e.peers {
		if p == nil {
			continue
		}
		for m := p.early; m != nil; m = m.next {
			if m.complete {
				n++
			}
		}
	}
	return n
}

// In steady state a message causes no allocation, whether it is received at once or early, and whether its receiver polls or sleeps.
func TestMessagesDoNotAllocate(t *testing.T) { // without the race detector
	overSome(t, func(t *testing.T, k kind) {
		for _, n := range []int{8, 100 << 10} {
			for _, early := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d_bytes/early=%v", n, early), func(t *testing.T) {
					w := newWorld(t, k, 2, nil)
					var s, r [2]Op
					var out, in [2][]byte
					for rank := range 2 {
						out[rank], in[rank] = make([]byte, n), make([]byte, n)
					}
					turns, done := make(chan uint64), make(chan error)
					defer close(turns)
					play := func(rank int, seq uint64) error {
						g := w.groups[rank]
						if err := begin(g, Call{Seq: seq}); err != nil {
							return err
						}
						if !early {
							g.Recv(&r[rank], 1-rank, in[rank])
						}
						g.Send(&s[rank], 1-rank, out[rank])
						if err := g.Wait(t.Context(), &s[rank]); err != nil {
							return err
						}
						if early {
							g.Recv(&r[rank], 1-rank, in[rank])
						}
						err := g.Wait(t.Context(), &r[rank])
						end(g)
						return err
					}
					go func() {
						for seq := range turns {
							done <- play(1, seq)
						}
					}()
					seq := uint64(0)
					allocs := testing.AllocsPerRun(300, func() {
						seq++
						turns <- seq
						if err := errors.Join(play(0, seq), <-done); err != nil {
							t.Error(err)
						}
					})
					if allocs >= 1 {
						t.Errorf("%v allocations for an exchange of two ranks", allocs)
					}
				})
			}
		}
	}, overTCP, overBoth)
}

// A part that is sent later leaves when something hurries it, or after a while. Parts stay in order.
func TestLaterPartsGoInTime(t *testing.T) {
	for what, tt := range map[string]struct {
		hurry func(t *testing.T, g *Group, later *Op) error
		parts int // number of parts that arrive
	}{
		"flush":     {func(_ *testing.T, g *Group, _ *Op) error { g.Flush(); return nil }, 1},
		"wait":      {func(t *testing.T, g *Group, later *Op) error { return g.Wait(t.Context(), later) }, 1},
		"next_part": {func(t *testing.T, g *Group, _ *Op) error { return g.Wait(t.Context(), g.sent(1)) }, 2},
		"leisure":   {func(*testing.T, *Group, *Op) error { return nil }, 1},
	} {
		t.Run(what, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 2, nil)
				w.each(func(rank int, g *Group) error {
					if err := begin(g, Call{Seq: 1}); err != nil {
						return err
					}
					if rank == 0 {
						var later Op
						g.SendLater(&later, 1)
						if later.Done() {
							t.Error("it is sent at once")
						}
						err := tt.hurry(t, g, &later)
						testkit.Eventually(t, "it is sent", later.Done)
						return err
					}
					for range tt.parts {
						var r Op
						g.Recv(&r, 0, nil)
						if err := g.Wait(t.Context(), &r); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
	}
}

// sent sends an empty part to a rank.
func (g *Group) sent(to int) *Op {
	op := new(Op)
	g.Send(op, to, nil)
	return op
}
