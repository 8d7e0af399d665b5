package engine

import (
	"errors"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// The end of a process is an error at once for whoever waits, for that rank or another; all name the one that ended.
func TestDeath(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		// Links that were never used are not watched in a Network.
		w.puppets[2].frame(0, kindLeave, Call{}, nil)
		done := make(chan []error, 1)
		go func() {
			done <- testkit.Each(2, func(rank int) error { return receive(t.Context(), w.groups[rank], 1-rank, 1, make([]byte, 8)) })
		}()
		eventuallyAsleep(t, w.engines[0], 1)
		eventuallyAsleep(t, w.engines[1], 1)
		w.puppets[2].die()
		var errs []error
		testkit.Within(t, testkit.Patience, func() { errs = <-done })
		for rank, err := range errs {
			if !errors.Is(err, ErrLost) {
				t.Errorf("rank %d got %v", rank, err)
			}
			wantText(t, err, "rank 2: connection lost: its process has ended without a goodbye, or was killed")
		}
		g, err := w.engines[0].Group(9, []int{0, 2})
		if err != nil {
			t.Fatal(err)
		}
		wantPeer(t, g.Err(), 1, ErrLost) // rank 1 of the group
		if err := w.join(0, 10, []int{0, 1}).Err(); err != nil {
			t.Errorf("a group without the dead rank got %v", err)
		}
	})
}

// A rank that dies in the middle of a frame: the receive fails, whether it was posted before or after, and the part that came
// is nobody's message.
func TestDeathInTheMiddle(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		for _, posted := range []bool{false, true} {
			for _, n := range []int{0, 1000, 100_000} {
				w := newWorld(t, k, 2, nil, 1)
				in := make([]byte, 200_000)
				var op Op
				if posted {
					w.groups[0].RecvMessage(&op, 1, tag(1), in)
				}
				w.puppets[1].say(0, header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}}, make([]byte, n), uint64(len(in)))
				if !posted {
					testkit.Eventually(t, "a part is there", func() bool { earlyMessages(w.engines[0]); return w.engines[0].held > 0 })
				}
				w.puppets[1].die()
				if !posted {
					w.groups[0].RecvMessage(&op, 1, tag(1), in)
				}
				err := within(t, func() error { return w.groups[0].Wait(t.Context(), &op) })
				clear(in)
				wantPeer(t, err, 1, ErrLost)
				wantNothingHeld(t, w.engines[0])
			}
		}
	})
}

// Half a header is no frame, and no end either.
func TestDeathInTheHeader(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		p := w.puppets[1]
		p.write(p.fabric.Control(0), []byte("dM\x02"))
		p.die()
		wantPeer(t, within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, nil) }), 1, ErrLost, "unexpected EOF")
	})
}

// What a rank had sent before it died is lost with its groups, but not what it had sent before it said goodbye.
func TestDeathWhileSending(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		testkit.Promptly(t, linger/2, func() time.Duration {
			w := newWorld(t, k, 2, nil, 1)
			payload := make([]byte, 16<<20)
			done := make(chan error, 1)
			w.puppets[1].frame(0, kindLeave, Call{}, nil)
			if k == inProcess { // it takes everything
				w.puppets[1].die()
			}
			go func() { done <- send(t.Context(), w.groups[0], 1, 1, payload) }()
			if k != inProcess {
				eventuallyAsleep(t, w.engines[0], 1)
				w.puppets[1].die()
			}
			err := within(t, func() error { return <-done })
			clear(payload)
			wantPeer(t, err, 1, ErrLost)
			start := time.Now()
			w.engines[0].Close() // nothing is left to be written
			return time.Since(start)
		})
	})
}

// A network that loses everything without a word is noticed at the time-out, which names the rank that is silent.
func TestCut(t *testing.T) {
	t.Parallel()
	const text = "rank 2: no progress for 100ms: it does not answer: it is stopped, or its machine or the network is gone"
	withAnswers(t, text, func(limit time.Duration) []error {
		w := newWorld(t, inProcess, 3, nil)
		w.each(func(rank int, g *Group) error { // all links are in use
			if err := begin(g, Call{Seq: 1}); err != nil {
				return err
			}
			for peer := range 3 {
				if peer != rank {
					if err := exchange(t.Context(), g, peer, nil, nil); err != nil {
						return err
					}
				}
			}
			end(g)
			return nil
		})
		w.hurry()
		w.awaitAnswers(limit) // ranks 0 and 1 answer, and rank 2 never does
		w.net.Cut(0, 2)
		w.net.Cut(1, 2)
		errs := testkit.Each(2, func(rank int) error {
			if err := begin(w.groups[rank], Call{Seq: 2}); err != nil {
				return err
			}
			var r Op
			w.groups[rank].Recv(&r, 1-rank, nil) // the rank waited for is not the one that is silent
			return within(t, func() error { return w.groups[rank].Wait(t.Context(), &r) })
		})
		for rank, err := range errs {
			if !errors.Is(err, ErrTimeout) {
				t.Errorf("rank %d got %v", rank, err)
			}
		}
		return errs
	})
}

// Frames that are lost one way are noticed, too, and slow links are not taken for dead ones.
func TestDropAndDelay(t *testing.T) {
	t.Parallel()
	var w *world
	withMoreTime(t, 20*shortly, func(timeout time.Duration) error {
		w = newWorld(t, inProcess, 2, func(_ int, o *Options) { o.Timeout = timeout })
		w.net.Delay(timeout / 4)
		for range 6 { // longer than the time-out, all in all
			errs := testkit.Each(2, func(rank int) error {
				g := w.groups[rank]
				return errors.Join(send(t.Context(), g, 1-rank, 1, []byte("x")), receive(t.Context(), g, 1-rank, 1, make([]byte, 1)))
			})
			if err := errors.Join(errs...); err != nil {
				return err
			}
		}
		return nil
	})
	w.hurry()
	w.net.Drop(func(from, to int) bool { return from == 1 })
	err := within(t, func() error {
		w.groups[1].Fail(errors.New("unheard"))
		return receive(t.Context(), w.groups[0], 1, 2, nil)
	})
	wantPeer(t, err, 1, ErrTimeout, "it does not answer")
}
