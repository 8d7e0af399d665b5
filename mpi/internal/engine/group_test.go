package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"ddpbatch/internal/testkit"
)

// Groups of other members and orders share the links, each with its own ranks, calls and tags.
func TestGroupsShareTheLinks(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		const size = 4
		w := newWorld(t, k, size, nil)
		members := map[uint64][]int{10: {3, 1, 0, 2}, 11: {2, 0}, 12: {1, 3}, 13: {0, 1, 2, 3}}
		errs := testkit.Each(size*len(members), func(i int) error {
			id, world := uint64(10+i/size), i%size
			if !slices.Contains(members[id], world) {
				return nil
			}
			g, err := w.engines[world].Group(id, members[id])
			if err != nil {
				return err
			}
			n := g.Size()
			if g.ID() != id || n != len(members[id]) || g.members[g.Rank()] != world {
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

// If one group fails again and again in the middle of large frames, another group on the same links goes on undisturbed: the streams stay
// valid.
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
				if rank == 0 {
					bad.Fail(why)
					if err := bad.Err(); err != why && !errors.Is(err, ErrAborted) {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				if err := bad.Wait(t.Context(), &r); err == nil {
					return fmt.Errorf("round %d: received what was not sent", round)
				}
				bad.Wait(t.Context(), &s)
				clear(out) // the caller owns it again: the race detector would report an access by the engine
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

// Frames that arrive for a group after its end are dropped, and cost no memory.
func TestLateFramesAreDropped(t *testing.T) {
	for name, finish := range map[string]func(*Group){"close": (*Group).Close, "retire": (*Group).Retire} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 2, nil, 1)
				g := w.join(0, 50, all(2))
				p := w.puppets[1]
				p.frame(0, kindMessage, Call{Group: 50, Seq: 1}, make([]byte, 100)) // early
				eventuallyEarly(t, w.engines[0], 1)
				p.send(0, header{kind: kindMessage, call: Call{Group: 50, Seq: 2}}, make([]byte, 50_000), 100_000) // in the middle
				testkit.Eventually(t, "a part is there", func() bool {
					earlyMessages(w.engines[0])
					return w.engines[0].earlyBytes > 100_000
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
				if hasNewsOf(w.engines[0], 50) {
					t.Error("news of a closed group is kept")
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

// A rank outside a group cannot fail it with an abort or a leave frame, and its message to the group is a protocol error.
func TestStrangerHasNoSayInAGroup(t *testing.T) {
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
		wantText(t, err, "world rank 2 sent to a group that it does not belong to")
	})
}

// Each field of the fingerprint counts, and both ranks' errors show both calls, whether the frame comes before this rank's call or during
// it, and whether this rank waits for that rank or another. The third rank gets the same error.
func TestMismatchOfAnyFieldIsSeenByBoth(t *testing.T) {
	base := Call{Group: worldID, Seq: 2, Count: 10, Root: 1, Collective: 1, Element: 2, Op: 3, Algorithm: 4}
	changes := map[string]func(*Call){
		"count":      func(c *Call) { c.Count++ },
		"root":       func(c *Call) { c.Root = -1 },
		"collective": func(c *Call) { c.Collective++ },
		"element":    func(c *Call) { c.Element++ },
		"operation":  func(c *Call) { c.Op++ },
		"algorithm":  func(c *Call) { c.Algorithm++ },
	}
	detailed := func(_ int, o *Options) { o.Describe = detail }
	for name, change := range changes {
		for _, early := range []bool{false, true} {
			for _, other := range []bool{false, true} {
				title := name
				if early {
					title += "_early"
				}
				if other {
					title += "_waiting_for_another"
				}
				t.Run(title, func(t *testing.T) {
					overAll(t, func(t *testing.T, k kind) {
						w := newWorld(t, k, 3, detailed)
						theirs := base
						change(&theirs)
						if err := begin(w.groups[1], theirs); err != nil {
							t.Fatal(err)
						}
						var op Op
						if early {
							w.groups[1].Send(&op, 0, []byte("1234"))
							eventuallyEarly(t, w.engines[0], 1)
						}
						var errs []error
						testkit.Within(t, testkit.Patience, func() {
							errs = testkit.Each(3, func(rank int) error {
								g := w.groups[rank]
								var r Op
								switch {
								case rank == 1 && !early:
									g.Send(&op, 0, []byte("1234"))
								case rank != 1:
									if err := begin(g, base); err != nil {
										return err
									}
								}
								from := []int{1, 0, 0}[rank]
								if rank == 0 && other {
									from = 2
								}
								g.Recv(&r, from, make([]byte, 4))
								return g.Wait(t.Context(), &r)
							})
						})
						var diff *MismatchError
						if !errors.As(errs[0], &diff) || diff.Here != 0 || diff.There != 1 || !errors.Is(errs[0], ErrMismatch) {
							t.Errorf("rank 0 got %v", errs[0])
						}
						for rank, err := range errs {
							wantText(t, err, fmt.Sprintf("calls differ: rank 0 called %v, rank 1 called %v", detail(base), detail(theirs)))
							if rank > 0 {
								wantAbort(t, err, 0, 1, ErrMismatch)
							}
						}
					})
				})
			}
		}
	}
}

func detail(c Call) string { return fmt.Sprintf("%+v", c) }

// The error names the lower rank first even if the higher rank found the mismatch.
func TestMismatchNamesTheLowerRankFirst(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		if err := errors.Join(begin(w.groups[0], Call{Seq: 1, Op: 1}), begin(w.groups[1], Call{Seq: 1, Op: 2})); err != nil {
			t.Fatal(err)
		}
		var s, r Op
		w.groups[0].Send(&s, 1, nil)
		w.groups[1].Recv(&r, 0, nil)
		err := within(t, func() error { return w.groups[1].Wait(t.Context(), &r) })
		if !errors.Is(err, ErrMismatch) {
			t.Errorf("got %v", err)
		}
		wantText(t, err, "calls differ: rank 0 called call #1 b, rank 1 called call #1 c")
	})
}

// A frame of a call that this rank has finished is compared with this rank's call of that number, as long as it remembers that call.
func TestMismatchWithAPastCallIsFound(t *testing.T) {
	for _, tt := range []struct {
		name string
		ago  uint64
		here string
	}{
		{"now", 0, "rank 0 called call #40 a"},
		{"last", 1, "rank 0 called call #39 a"},
		{"oldest_known", pastCalls - 1, "rank 0 called call #25 a"},
		{"forgotten", pastCalls, "rank 0 called call #40 a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 3, nil)
				const now = 40
				for seq := range uint64(now) {
					if err := begin(w.groups[0], Call{Seq: seq + 1}); err != nil {
						t.Fatal(err)
					}
					end(w.groups[0])
				}
				if err := begin(w.groups[1], Call{Seq: now - tt.ago, Op: 7}); err != nil {
					t.Fatal(err)
				}
				var s, r Op
				w.groups[1].Send(&s, 0, nil)
				w.groups[0].Recv(&r, 2, nil)
				err := within(t, func() error { return w.groups[0].Wait(t.Context(), &r) })
				if !errors.Is(err, ErrMismatch) {
					t.Errorf("got %v", err)
				}
				wantText(t, err, tt.here+", rank 1 called call #"+strconv.Itoa(int(now-tt.ago))+" h")
				err = within(t, func() error { w.groups[1].Recv(&r, 0, nil); return w.groups[1].Wait(t.Context(), &r) })
				wantAbort(t, err, 0, 1, ErrMismatch)
			})
		})
	}
}

// A receive of a past call can be completed during a later call. A frame of the past call that no receive waits for is a mismatch.
func TestReceiveOutlivesItsCall(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		var early, late, s Op
		for seq, op := range []*Op{&early, &late} {
			if err := begin(w.groups[0], Call{Seq: uint64(seq) + 1}); err != nil {
				t.Fatal(err)
			}
			w.groups[0].Recv(op, 1, nil)
			end(w.groups[0])
		}
		if err := errors.Join(begin(w.groups[0], Call{Seq: 3}), begin(w.groups[1], Call{Seq: 1})); err != nil {
			t.Fatal(err)
		}
		w.groups[1].Send(&s, 0, nil)
		if err := within(t, func() error { return w.groups[0].Wait(t.Context(), &early) }); err != nil {
			t.Fatal(err)
		}
		w.groups[1].Send(&s, 0, nil)
		if err := within(t, func() error { return w.groups[0].Wait(t.Context(), &late) }); !errors.Is(err, ErrMismatch) {
			t.Errorf("got %v", err)
		}
	})
}

// A rank may be ahead of another. Its frames for later calls are received in those calls.
func TestRankAheadDoesNoHarm(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		const calls = 3 * pastCalls
		for seq := range uint64(calls) {
			if err := begin(w.groups[1], Call{Seq: seq + 1, Op: uint8(seq)}); err != nil {
				t.Fatal(err)
			}
			if err := within(t, func() error {
				var s Op
				w.groups[1].Send(&s, 0, []byte{byte(seq)})
				return w.groups[1].Wait(t.Context(), &s)
			}); err != nil {
				t.Fatal(err)
			}
			end(w.groups[1])
		}
		eventuallyEarly(t, w.engines[0], calls)
		for seq := range uint64(calls) {
			if err := begin(w.groups[0], Call{Seq: seq + 1, Op: uint8(seq)}); err != nil {
				t.Fatal(err)
			}
			var r Op
			in := make([]byte, 1)
			w.groups[0].Recv(&r, 1, in)
			if err := w.groups[0].Wait(t.Context(), &r); err != nil || in[0] != byte(seq) {
				t.Fatalf("call %d: got %d, %v", seq+1, in[0], err)
			}
			end(w.groups[0])
		}
	})
}

func TestPartOfAnotherLengthIsRefused(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, n := range []int{7, 9} {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 2, nil)
				if err := errors.Join(begin(w.groups[0], Call{Seq: 1}), begin(w.groups[1], Call{Seq: 1})); err != nil {
					t.Fatal(err)
				}
				var s, r Op
				if early {
					w.groups[1].Send(&s, 0, make([]byte, n))
					eventuallyEarly(t, w.engines[0], 1)
				}
				w.groups[0].Recv(&r, 1, make([]byte, 8))
				if !early {
					w.groups[1].Send(&s, 0, make([]byte, n))
				}
				err := within(t, func() error { return w.groups[0].Wait(t.Context(), &r) })
				if !errors.Is(err, ErrMismatch) {
					t.Errorf("got %v", err)
				}
				wantText(t, err, "rank 0 called call #1 a, expecting 8 bytes from rank 1, rank 1 called call #1 a, sending "+
					strconv.Itoa(n)+" bytes to rank 0")
				err = within(t, func() error { return receive(t.Context(), w.groups[1], 0, 1, nil) })
				wantAbort(t, err, 0, 1, ErrMismatch)
			})
		}
	}
}
