package engine

import (
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
)

const remainsID = 20

// remains makes the ranks with an engine members of a group that outlives its members.
func (w *world) remains() []*Group {
	w.t.Helper()
	groups := make([]*Group, len(w.engines))
	for rank, e := range w.engines {
		if e == nil {
			continue
		}
		g, err := e.Remains(remainsID, all(len(w.engines)))
		if err != nil {
			w.t.Fatal(err)
		}
		groups[rank] = g
	}
	return groups
}

// In such a group the end of a rank is an error of what needs that rank, and of nothing else: whether it ended before the
// group was made, while it is waited for, or between.
func TestRemains(t *testing.T) {
	for _, when := range []string{"before", "while_receiving", "while_sending", "between"} {
		for name, gone := range map[string]struct {
			do     func(*puppet)
			reason error
		}{
			"death":  {func(p *puppet) { p.die() }, ErrLost},
			"bye":    {func(p *puppet) { p.bye(0) }, ErrLeft},
			"leaves": {func(p *puppet) { p.frame(0, kindLeave, Call{Group: remainsID}, nil) }, ErrLeft},
		} {
			if when == "while_sending" && name == "leaves" {
				continue // whoever has left the group still takes what is sent to it
			}
			t.Run(when+"/"+name, func(t *testing.T) {
				overAll(t, func(t *testing.T, k kind) {
					w := newWorld(t, k, 3, nil, 2)
					w.puppets[2].frame(0, kindLeave, Call{}, nil)
					done := make(chan error, 1)
					heard := func(g *Group) {
						testkit.Eventually(t, "the end is noticed", func() bool { return hasLeft(g, 2) })
					}
					var groups []*Group
					if when == "before" {
						gone.do(w.puppets[2])
						if name == "leaves" {
							testkit.Eventually(t, "the news is there", func() bool { return heardOf(w.engines[0], remainsID) })
						} else {
							heard(w.groups[0])
						}
						groups = w.remains()
					} else {
						groups = w.remains()
					}
					switch {
					case when == "while_receiving":
						go func() { done <- receive(t.Context(), groups[0], 2, 1, make([]byte, 4)) }()
						eventuallyAsleep(t, w.engines[0], 1)
						gone.do(w.puppets[2])
					case when == "while_sending" && k != inProcess:
						go func() { done <- send(t.Context(), groups[0], 2, 1, make([]byte, 16<<20)) }()
						eventuallyAsleep(t, w.engines[0], 1)
						gone.do(w.puppets[2])
					case when == "between":
						gone.do(w.puppets[2])
						heard(groups[0])
						fallthrough
					default:
						gone.do(w.puppets[2])
						heard(groups[0])
						go func() { done <- receive(t.Context(), groups[0], 2, 1, make([]byte, 4)) }()
					}
					wantPeer(t, within(t, func() error { return <-done }), 2, gone.reason)
					wantPeer(t, within(t, func() error { return send(t.Context(), groups[0], 2, 1, nil) }), 2, gone.reason)
					if err := errors.Join(groups[0].Err(), groups[1].Err()); err != nil {
						t.Errorf("the group failed: %v", err)
					}
					errs := testkit.Each(2, func(rank int) error {
						return errors.Join(send(t.Context(), groups[rank], 1-rank, 1, []byte("x")), receive(t.Context(), groups[rank], 1-rank, 1, make([]byte, 1)))
					})
					if err := errors.Join(errs...); err != nil {
						t.Errorf("the ranks that remain: %v", err)
					}
				})
			})
		}
	}
}

// What a rank sent before it ended is received, also where its end is noticed first.
func TestRemainsLastWords(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		g := w.remains()[0]
		w.puppets[1].frame(0, kindMessage, Call{Group: remainsID, Seq: 3}, []byte("last words"))
		w.puppets[1].say(0, header{kind: kindMessage, call: Call{Group: remainsID, Seq: 4}}, []byte("a part"), 100)
		w.puppets[1].die()
		testkit.Eventually(t, "the end is noticed", func() bool { return hasLeft(g, 1) })
		in := make([]byte, 100)
		if err := within(t, func() error { return receive(t.Context(), g, 1, 3, in) }); err != nil || string(in[:10]) != "last words" {
			t.Errorf("received %q, %v", in, err)
		}
		wantPeer(t, within(t, func() error { return receive(t.Context(), g, 1, 4, in) }), 1, ErrLost)
		wantNothingHeld(t, w.engines[0])
	})
}
