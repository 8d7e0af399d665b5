package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"ddpbatch/internal/testkit"
)

// Groups of other members and orders share the links, each with its own ranks, calls and tags.
func TestGroupsSideBySide(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		const size = 4
		w := newWorld(t, k, size, nil)
		members := map[uint64][]int{10: {3, 1, 0, 2}, 11: {2, 0}, 12: {1, 3}, 13: {0, 1, 2, 3}}
		errs := testkit.Each(size*len(members), func(i int) error {
			id, world := uint64(10+i/size), i%size
			g, err := w.engines[world].Group(id, members[id])
			if !contains(members[id], world) {
				if err == nil {
					return fmt.Errorf("rank %d became a member of group %d", world, id)
				}
				return nil
			}
			if err != nil {
				return err
			}
			n := g.Size()
			if g.ID() != id || n != len(members[id]) || g.World(g.Rank()) != world {
				return fmt.Errorf("rank %d is rank %d of %d in group %d", world, g.Rank(), n, g.ID())
			}
			for seq := range uint64(50) {
				if err := begin(g, Call{Seq: seq + 1, Op: uint8(id)}); err != nil {
					return err
				}
				right, left := (g.Rank()+1)%n, (g.Rank()+n-1)%n
				in := make([]byte, 1000)
				var s, r Op
				g.Send(&s, right, bytes.Repeat([]byte{byte(id), byte(g.Rank())}, 500))
				g.Recv(&r, left, in)
				if err := errors.Join(g.Wait(t.Context(), &r), g.Wait(t.Context(), &s)); err != nil {
					return err
				}
				if !bytes.Equal(in, bytes.Repeat([]byte{byte(id), byte(left)}, 500)) {
					return fmt.Errorf("group %d, rank %d got % x...", id, g.Rank(), in[:4])
				}
				end(g)
			}
			return nil
		})
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func contains(ranks []int, rank int) bool {
	for _, r := range ranks {
		if r == rank {
			return true
		}
	}
	return false
}

func TestGroupThatCannotBe(t *testing.T) {
	w := newWorld(t, inProcess, 2, nil)
	for name, members := range map[string][]int{"nobody": nil, "not_this_rank": {1}, "beyond": {0, 2}, "negative": {-1, 0}} {
		if g, err := w.engines[0].Group(5, members); err == nil {
			t.Errorf("%s: rank %d of %d", name, g.Rank(), g.Size())
		}
	}
}

// One group fails again and again in the middle of large frames; another on the same links goes on undisturbed: the
// streams stay valid.
func TestOneFailsAnotherGoesOn(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		const rounds = 5
		why := errors.New("on purpose")
		w.each(func(rank int, g *Group) error {
			for round := range uint64(rounds) {
				bad := w.join(rank, 100+round, all(2))
				var s, r Op
				out, in := make([]byte, 3<<20), make([]byte, 3<<20)
				bad.SendMessage(&s, 1-rank, tag(1), out)
				bad.RecvMessage(&r, 1-rank, tag(2), in) // never sent
				if rank == 0 && bad.Fail(why) != why && !errors.Is(bad.Err(), ErrAborted) {
					return fmt.Errorf("round %d: %w", round, bad.Err())
				}
				if err := bad.Wait(t.Context(), &r); err == nil {
					return fmt.Errorf("round %d: received what was not sent", round)
				}
				bad.Wait(t.Context(), &s)
				clear(out) // the caller's again: the race detector would see the engine in it
				clear(in)
				if err := begin(g, Call{Seq: round + 1}); err != nil {
					return err
				}
				got := make([]byte, 100_000)
				if err := exchange(t.Context(), g, 1-rank, pattern(rank+int(round), len(got)), got); err != nil {
					return err
				}
				if !bytes.Equal(got, pattern(1-rank+int(round), len(got))) {
					return fmt.Errorf("round %d: the other group got something else", round)
				}
				end(g)
				bad.Close()
			}
			return nil
		})
	})
}

// What comes for a group that this rank is not of yet waits for it: messages, failures, and that somebody has left already.
func TestNewsOfAGroupToCome(t *testing.T) {
	const id = 77
	t.Run("messages", func(t *testing.T) {
		overAll(t, func(t *testing.T, k kind) {
			w := newWorld(t, k, 2, nil)
			early := w.join(0, id, all(2))
			var ops [2]Op
			for i := range ops {
				early.SendMessage(&ops[i], 1, tag(uint64(i)), []byte{byte(i)})
			}
			eventuallyEarly(t, w.engines[1], 2)
			late := w.join(1, id, all(2))
			for i := 1; i >= 0; i-- {
				in := make([]byte, 1)
				if err := receive(t.Context(), late, 0, uint64(i), in); err != nil || in[0] != byte(i) {
					t.Errorf("got %d, %v", in[0], err)
				}
			}
		})
	})
	t.Run("failure", func(t *testing.T) {
		overAll(t, func(t *testing.T, k kind) {
			w := newWorld(t, k, 3, nil)
			early := w.join(0, id, []int{2, 0, 1})
			early.Fail(errors.New("bad arguments"))
			testkit.Eventually(t, "the news is there", func() bool { return heardOf(w.engines[1], id) })
			late := w.join(1, id, []int{2, 0, 1})
			wantAbort(t, late.Err(), 1, 1, ErrAborted, "rank 1 gave up: bad arguments")
			if err := begin(late, Call{Seq: 1}); err != late.Err() {
				t.Errorf("a call got %v", err)
			}
			// Who fails later hears of the first failure, too.
			wantAbort(t, w.groupAfter(2, id, []int{2, 0, 1}), 1, 1, ErrAborted)
		})
	})
	t.Run("leave", func(t *testing.T) {
		overSome(t, func(t *testing.T, k kind) {
			w := newWorld(t, k, 2, nil)
			w.join(0, id, all(2)).Close()
			testkit.Eventually(t, "the news is there", func() bool { return heardOf(w.engines[1], id) })
			err := within(t, func() error { return receive(t.Context(), w.join(1, id, all(2)), 0, 1, nil) })
			wantPeer(t, err, 0, ErrLeft, "it has left the group after call #0")
		}, overTCP, overBoth)
	})
}

// heardOf drives the links, and tells whether there is news of a group that the rank is not of.
func heardOf(e *Engine, id uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
	return e.news[id] != nil
}

// groupAfter joins a group whose failure is on its way, and returns that.
func (w *world) groupAfter(rank int, id uint64, members []int) error {
	g := w.join(rank, id, members)
	var op Op
	g.RecvMessage(&op, 1, tag(1), nil)
	return within(w.t, func() error { return g.Wait(context.Background(), &op) })
}

// Hostile peers cannot make an engine remember without bound.
func TestNewsIsBounded(t *testing.T) {
	w := newWorld(t, overTCP, 2, nil, 1)
	abort := (&AbortError{By: 1, Rank: 1, Reason: ErrAborted}).encode()
	for id := range uint64(maxNews + 100) {
		w.puppets[1].frame(0, kindAbort, Call{Group: 1000 + id}, abort)
		w.puppets[1].frame(0, kindLeave, Call{Group: 10_000 + id}, nil)
	}
	testkit.Eventually(t, "the rank remembers", func() bool { return heardOf(w.engines[0], 1000) })
	w.puppets[1].frame(0, kindMessage, Call{Group: worldID, Seq: 1}, nil)
	if err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, nil) }); err != nil {
		t.Fatal(err)
	}
	if n := len(w.engines[0].news); n != maxNews {
		t.Errorf("%d groups are remembered, want %d", n, maxNews)
	}
}

// Frames that come for a group after its end are nobody's, and cost nothing.
func TestLateFrames(t *testing.T) {
	for name, finish := range map[string]func(*Group){"close": (*Group).Close, "retire": (*Group).Retire} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 2, nil, 1)
				g := w.join(0, 50, all(2))
				p := w.puppets[1]
				p.frame(0, kindMessage, Call{Group: 50, Seq: 1}, make([]byte, 100)) // early
				eventuallyEarly(t, w.engines[0], 1)
				p.say(0, header{kind: kindMessage, call: Call{Group: 50, Seq: 2}}, make([]byte, 50_000), 100_000) // in the middle
				testkit.Eventually(t, "a part is there", func() bool {
					earlyMessages(w.engines[0])
					return w.engines[0].held > 100_000
				})
				finish(g)
				p.write(p.lane(0, kindMessage), make([]byte, 50_000))
				p.frame(0, kindMessage, Call{Group: 50, Seq: 3}, make([]byte, 100_000))
				p.frame(0, kindCollective, Call{Group: 50, Seq: 1}, nil)
				p.frame(0, kindAbort, Call{Group: 50}, (&AbortError{By: 1, Rank: 1, Reason: ErrLost}).encode())
				p.frame(0, kindLeave, Call{Group: 50}, nil)
				p.frame(0, kindMessage, Call{Group: worldID, Seq: 9}, []byte("x"))
				if err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 9, make([]byte, 1)) }); err != nil {
					t.Fatal(err)
				}
				wantNothingHeld(t, w.engines[0])
				if heardOf(w.engines[0], 50) {
					t.Error("news is kept of a group that is no more")
				}
				var op Op
				g.RecvMessage(&op, 1, tag(1), nil)
				if err := g.Wait(t.Context(), &op); !errors.Is(err, ErrClosed) {
					t.Errorf("a receive got %v", err)
				}
			})
		})
	}
}

// Whoever is of the world and not of the group has no say in it.
func TestStrangerToTheGroup(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		g := [2]*Group{w.join(0, 60, all(2)), w.join(1, 60, all(2))}
		w.puppets[2].frame(0, kindAbort, Call{Group: 60}, (&AbortError{By: 1, Rank: 1, Reason: ErrLost}).encode())
		w.puppets[2].frame(0, kindLeave, Call{Group: 60}, nil)
		w.puppets[2].frame(0, kindMessage, Call{Group: worldID, Seq: 1}, nil)
		if err := receive(t.Context(), w.groups[0], 2, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := g[0].Err(); err != nil {
			t.Errorf("a stranger made the group fail: %v", err)
		}
		w.puppets[2].frame(0, kindMessage, Call{Group: 60, Seq: 1}, nil)
		err := within(t, func() error { return receive(t.Context(), g[0], 1, 1, nil) })
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("a stranger's message got %v", err)
		}
		wantText(t, err, "rank 2 of all sent to a group that it is not of")
	})
}
