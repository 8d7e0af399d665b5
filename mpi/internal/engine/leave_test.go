package engine

import (
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
)

// A goodbye is no failure, until one needs that rank: what it sent before is received, the others go on.
func TestLeave(t *testing.T) {
	for name, leave := range map[string]func(*world){
		"group":  func(w *world) { w.groups[2].Close() },
		"engine": func(w *world) { w.engines[2].Close() },
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 3, nil)
				for _, g := range w.groups {
					if err := begin(g, Call{Seq: 1}); err != nil {
						t.Fatal(err)
					}
				}
				var ops [2]Op
				for to := range ops {
					w.groups[2].Send(&ops[to], to, []byte("last words"))
				}
				leave(w)
				for rank := range 2 {
					testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[rank], 2) })
				}
				w.each(func(rank int, g *Group) error {
					if rank == 2 {
						return nil
					}
					if err := exchange(t.Context(), g, 1-rank, []byte("x"), make([]byte, 1)); err != nil {
						return err
					}
					var r Op
					in := make([]byte, 10)
					g.Recv(&r, 2, in)
					if err := g.Wait(t.Context(), &r); err != nil || string(in) != "last words" {
						t.Errorf("rank %d received %q, %v", rank, in, err)
					}
					return nil
				})
				text := "rank 2: it has left the group"
				if name == "group" {
					text += " after call #0" // it has not ended the first
				}
				var r Op
				w.groups[0].Recv(&r, 2, make([]byte, 10))
				wantPeer(t, w.groups[0].Wait(t.Context(), &r), 2, ErrLeft, text)
				w.groups[1].Send(&r, 2, nil) // or rank 0 has told it before
				if err := w.groups[1].Wait(t.Context(), &r); !errors.Is(err, ErrLeft) {
					t.Errorf("sending got %v", err)
				}
				var op Op
				w.groups[2].Recv(&op, 0, nil)
				if err := w.groups[2].Wait(t.Context(), &op); !errors.Is(err, ErrClosed) {
					t.Errorf("the rank that left got %v", err)
				}
			})
		})
	}
}

// hasLeft drives the links, and tells whether a rank is known to have left.
func hasLeft(g *Group, rank int) bool {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.look()
	return g.hasLeft(rank)
}

// A rank that leaves while another waits for it, for a frame or to take one, fails that at once.
func TestLeaveWhileWaitedFor(t *testing.T) {
	for name, leave := range map[string]func(*puppet){
		"group":  func(p *puppet) { p.frame(0, kindLeave, Call{Group: worldID, Seq: 7}, nil) },
		"engine": func(p *puppet) { p.bye(0) },
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 2, nil, 1)
				done := make(chan error, 1)
				go func() { done <- receive(t.Context(), w.groups[0], 1, 1, make([]byte, 8)) }()
				eventuallyAsleep(t, w.engines[0], 1)
				leave(w.puppets[1])
				wantPeer(t, within(t, func() error { return <-done }), 1, ErrLeft)
			})
		})
	}
}

// A goodbye of the engine ends the sends that are under way; the connection may stay open for a while.
func TestLeaveBeforeTheFrame(t *testing.T) {
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		payload := make([]byte, 16<<20)
		done := make(chan error, 1)
		go func() { done <- send(t.Context(), w.groups[0], 1, 1, payload) }()
		eventuallyAsleep(t, w.engines[0], 1)
		w.puppets[1].bye(0)
		err := within(t, func() error { return <-done })
		clear(payload) // the caller's again
		wantPeer(t, err, 1, ErrLeft)
	}, overTCP, overBoth)
}

// A rank has closed its group, its engine and its links before anything of that is read here. Who then sends to it is still told what it
// said first: after which call it left.
func TestLeftBeforeTheSend(t *testing.T) {
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		e, g, p := w.engines[0], w.groups[0], w.puppets[1]
		var op Op
		e.mu.Lock()
		p.frame(0, kindLeave, Call{Group: worldID, Seq: 7}, nil)
		p.bye(0)
		p.die()
		for range 100 { // until one finds out
			if g.send(&op, kindCollective, Call{Seq: 8}, 1, make([]byte, 8)); g.err != nil || op.Done() && op.err != nil {
				break
			}
		}
		e.mu.Unlock()
		wantPeer(t, g.Wait(t.Context(), &op), 1, ErrLeft, "it has left the group after call #7")
	}, inProcess, overTCP) // shared memory has room for what nobody reads
}

// A rank that has received everything may leave at once: that must not spoil the send whose frame let it go.
func TestLeaveWithTheLastFrame(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		for range 10 {
			w := newWorld(t, k, 2, nil)
			payload := pattern(1, 1<<20)
			w.each(func(rank int, g *Group) error {
				if rank == 0 {
					return send(t.Context(), g, 1, 1, payload)
				}
				err := receive(t.Context(), g, 0, 1, make([]byte, len(payload)))
				return errors.Join(err, w.engines[1].Close())
			})
		}
	})
}

// Messages that wait in the link for room, as their receiver keeps enough already, are received after their sender has said goodbye.
func TestLeaveWithMessagesHeldUp(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		w.holdLittle(0)
		most := make([]byte, little-8000)
		sent := make(chan error, 1)
		go func() { sent <- send(t.Context(), w.groups[2], 0, 1, most) }()
		eventuallyEarly(t, w.engines[0], 1)
		for i := range uint64(20) { // they fit into the links
			if err := send(t.Context(), w.groups[1], 0, i, pattern(int(i), 1000)); err != nil {
				t.Fatal(err)
			}
		}
		eventuallyStalled(t, w.engines[0], 1)
		w.engines[1].Close()
		if k == overBoth { // elsewhere the goodbye waits behind the messages
			testkit.Eventually(t, "the goodbye is heard", func() bool {
				e := w.engines[0]
				e.mu.Lock()
				defer e.mu.Unlock()
				e.look()
				return e.peer(1).control.over
			})
		}
		if err := receive(t.Context(), w.groups[0], 2, 1, make([]byte, len(most))); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(20) {
			if err := receive(t.Context(), w.groups[0], 1, i, make([]byte, 1000)); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		wantPeer(t, within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, nil) }), 1, ErrLeft)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}
