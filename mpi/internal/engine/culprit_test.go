package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// The error of a wait that times out names the rank that is furthest behind, which need not be the one waited for, and says what that rank
// did last.
func TestTimeoutNamesTheRankFurthestBehind(t *testing.T) {
	idle := func(*Group) error { return nil }
	in := func(seq uint64) func(*Group) error {
		return func(g *Group) error { return begin(g, Call{Seq: seq, Op: 1}) }
	}
	after := func(seq uint64) func(*Group) error {
		return func(g *Group) error {
			defer end(g)
			return begin(g, Call{Seq: seq, Op: 1})
		}
	}
	tests := []struct {
		name         string
		does1, does2 func(*Group) error // rank 0 is in call 5, and waits for rank 1
		culprit      int
		texts        []string
	}{
		{"not_begun", in(5), idle, 2, []string{"rank 2: no progress for 100ms: it has not made a call yet (host2, pid 2)"}},
		{"not_entered", in(5), after(4), 2, []string{"rank 2: no progress for 100ms: it has not entered call #5 b; it finished call #4 b ",
			" ago (host2, pid 2)"}},
		{"still_in_an_earlier", in(5), in(3), 2, []string{"it is still in call #3 b, for "}},
		{"in_the_earlier_before_out_of_it", after(4), in(4), 2, []string{"it is still in call #4 b, for "}},
		{"furthest", after(4), after(2), 2, []string{"it finished call #2 b "}},
		{"neighbour", in(1), after(4), 1, []string{"it is still in call #1 b"}},
		{"all_in_it", in(5), in(5), 1, []string{"it has been in call #5 b for ", ", and waits or hangs (host1, pid 1)"}},
		{"neighbour_is_ahead", in(6), in(5), 1, []string{"it has been in call #6 b for "}},
		{"neighbour_has_finished", after(5), in(5), 1, []string{"it finished call #5 b "}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			overSome(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 3, func(rank int, o *Options) {
					if rank == 0 { // the others have time to learn of its failure
						o.Timeout = shortly
					}
					o.Label = []string{"host0, pid 0", "host1, pid 1", "host2, pid 2"}[rank]
				})
				w.awaitAnswers(testkit.Patience)
				if err := errors.Join(in(5)(w.groups[0]), tt.does1(w.groups[1]), tt.does2(w.groups[2])); err != nil {
					t.Fatal(err)
				}
				var r Op
				w.groups[0].Recv(&r, 1, nil)
				err := within(t, func() error { return w.groups[0].Wait(t.Context(), &r) })
				wantPeer(t, err, tt.culprit, ErrTimeout, tt.texts...)
				err = within(t, func() error { w.groups[1].Recv(&r, 2, nil); return w.groups[1].Wait(t.Context(), &r) })
				wantAbort(t, err, 0, tt.culprit, ErrTimeout, append(tt.texts, "rank 0 gave up: call #5 b: rank ")...)
			}, []kind{inProcess, overTCP, overBoth}[i%3]) // questions and answers are the same on all fabrics
		})
	}
}

func TestTimeoutNamesMissingRanks(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		w.awaitAnswers(testkit.Patience)
		g := w.join(0, 30, all(2))
		err := within(t, func() error { return send(t.Context(), g, 1, 1, nil) })
		if err != nil {
			t.Fatal(err)
		}
		w.shortenAnswerTimeout()
		wantPeer(t, within(t, func() error { return receive(t.Context(), g, 1, 1, nil) }), 1, ErrTimeout, "it has not joined the group")
	}, overBoth)
}

// A rank that has left with a goodbye is not blamed if another rank is late.
func TestCulpritIsNotARankThatLeft(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*world){
		"group":  func(w *world) { w.groups[1].Close() },
		"engine": func(w *world) { w.engines[1].Close() },
	} {
		t.Run(name, func(t *testing.T) {
			overSome(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 3, nil)
				if err := send(t.Context(), w.groups[1], 0, 9, nil); err != nil {
					t.Fatal(err)
				}
				w.awaitAnswers(testkit.Patience)
				leave(w)
				testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[0], 1) })
				w.shortenAnswerTimeout()
				if err := begin(w.groups[0], Call{Seq: 1}); err != nil {
					t.Fatal(err)
				}
				var r Op
				w.groups[0].Recv(&r, 2, nil)
				err := within(t, func() error { return w.groups[0].Wait(t.Context(), &r) })
				wantPeer(t, err, 2, ErrTimeout, "it has not made a call yet")
			}, overTCP)
		})
	}
}

// A silent rank is named even if no rank waits for it directly, and by all groups that time out at once.
func TestSilentRankIsNamedByAllGroups(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		const text = "rank 2: no progress for 100ms: it does not answer: it is stopped, or its machine or the network has failed"
		withAnswers(t, text, func(limit time.Duration) []error {
			w := newWorld(t, k, 3, impatient, 2)
			w.awaitAnswers(limit) // rank 1 answers, and rank 2 never does
			groups := [2][]*Group{}
			for rank := range groups {
				for id := range uint64(3) {
					groups[rank] = append(groups[rank], w.join(rank, 40+id, all(3)))
				}
			}
			errs := testkit.Each(3, func(i int) error {
				g := groups[0][i]
				for seq := range uint64(i + 1) { // each group is in another call
					if err := begin(g, Call{Seq: seq + 1}); err != nil {
						return err
					}
					if err := begin(groups[1][i], Call{Seq: seq + 1}); err != nil {
						return err
					}
				}
				var r Op
				g.Recv(&r, 1, nil)
				return within(t, func() error { return g.Wait(t.Context(), &r) })
			})
			for _, err := range errs {
				if err == nil || strings.Contains(err.Error(), text) {
					wantPeer(t, err, 2, ErrTimeout)
				}
			}
			return errs
		})
	}, overTCP)
}

// If groups time out at the same time, each uses only the answers about itself.
func TestTimeoutsOfGroupsAreKeptApart(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, impatient)
		w.awaitAnswers(testkit.Patience)
		const groups = 8
		errs := testkit.Each(groups, func(i int) error {
			mine, theirs := w.join(0, uint64(60+i), all(2)), w.join(1, uint64(60+i), all(2))
			if err := begin(mine, Call{Seq: uint64(i + 2)}); err != nil {
				return err
			}
			if err := begin(theirs, Call{Seq: uint64(i + 1)}); err != nil {
				return err
			}
			end(theirs)
			var r Op
			mine.Recv(&r, 1, nil)
			return within(t, func() error { return mine.Wait(t.Context(), &r) })
		})
		for i, err := range errs {
			wantPeer(t, err, 1, ErrTimeout, "it has not entered "+describeCall(Call{Seq: uint64(i + 2)})+"; it finished "+
				describeCall(Call{Seq: uint64(i + 1)}))
		}
	}, overBoth)
}

// A transfer may take longer than the time-out if some of it keeps moving.
func TestSlowPeerIsNotStuck(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		withMoreTime(t, 20*shortly, func(timeout time.Duration) error {
			w := newWorld(t, k, 2, func(_ int, o *Options) { o.Timeout = timeout }, 1)
			in := make([]byte, 40)
			done := make(chan error, 1)
			go func() { done <- receive(t.Context(), w.groups[0], 1, 1, in) }()
			w.puppets[1].send(0, header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}}, nil, uint64(len(in)))
			for range in {
				pause(timeout * 5 / 4 / time.Duration(len(in))) // makes the peer slow
				w.puppets[1].write(w.puppets[1].lane(0, kindMessage), []byte("x"))
			}
			return within(t, func() error { return <-done })
		})
	}, overTCP, overBoth)
}

// A send that the peer does not read times out like a receive.
func TestSendTimesOut(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, impatient, 1)
		payload := make([]byte, 16<<20)
		err := within(t, func() error { return send(t.Context(), w.groups[0], 1, 1, payload) })
		clear(payload)
		wantPeer(t, err, 1, ErrTimeout)
		w.puppets[1].die() // otherwise closing would wait for the peer to read
	}, overTCP)
}
