package engine

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"ddpbatch/internal/testkit"
)

// Each field of the fingerprint counts, and both sides show both calls: whether the frame comes before this rank's call
// or while it waits, and whether it waits for that rank or another. The third rank hears of the same.
func TestMismatch(t *testing.T) {
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

// The lower rank is named first also where the higher one found out.
func TestMismatchFoundByTheHigher(t *testing.T) {
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

// A frame of a call that this rank has finished is set against what it called then, as long as it remembers; one of a
// call to come is kept until then.
func TestMismatchWithThePast(t *testing.T) {
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

// A rank that is ahead does no harm, and its frames of the calls to come are received in their calls.
func TestRankAhead(t *testing.T) {
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

// The parts of a collective have the length that is due.
func TestPartOfAnotherLength(t *testing.T) {
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
				wantText(t, err, "rank 0 called call #1 a, with 8 bytes due from rank 1, rank 1 called call #1 a, with "+strconv.Itoa(n)+" bytes for rank 0")
				err = within(t, func() error { return receive(t.Context(), w.groups[1], 0, 1, nil) })
				wantAbort(t, err, 0, 1, ErrMismatch)
			})
		}
	}
}
