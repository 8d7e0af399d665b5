package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// A goodbye is not a failure until a rank needs the rank that left. What that rank sent before is received, and the others go on.
func TestGoodbyeIsNotAFailure(t *testing.T) {
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
					text += " after call #0" // it has not ended the first call
				}
				var r Op
				w.groups[0].Recv(&r, 2, make([]byte, 10))
				wantPeer(t, w.groups[0].Wait(t.Context(), &r), 2, ErrLeft, text)
				w.groups[1].Send(&r, 2, nil) // unless rank 0 has notified it before
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

// hasLeft drives the links, and reports whether a rank is known to have left.
func hasLeft(g *Group, rank int) bool {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	g.e.look()
	return g.hasLeft(rank)
}

// If a rank leaves while another waits for a frame from it, the wait fails at once.
func TestLeaverFailsWhoWaitsForIt(t *testing.T) {
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

// A goodbye of the engine ends the sends to that rank that are under way, even if the connection stays open for a while.
func TestGoodbyeEndsSendsUnderWay(t *testing.T) {
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		payload := make([]byte, 16<<20)
		done := make(chan error, 1)
		go func() { done <- send(t.Context(), w.groups[0], 1, 1, payload) }()
		eventuallyAsleep(t, w.engines[0], 1)
		w.puppets[1].bye(0)
		err := within(t, func() error { return <-done })
		clear(payload) // the caller owns it again
		wantPeer(t, err, 1, ErrLeft)
	}, overTCP, overBoth)
}

// If a rank has closed its group, its engine and its links before this rank reads any of that, a later send still gets the first error,
// which says after which call the rank left.
func TestSendAfterAGoodbyeSaysWhenItWas(t *testing.T) {
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		e, g, p := w.engines[0], w.groups[0], w.puppets[1]
		var op Op
		e.mu.Lock()
		p.frame(0, kindLeave, Call{Group: worldID, Seq: 7}, nil)
		p.bye(0)
		p.die()
		for range 100 { // until a send notices
			if g.send(&op, kindCollective, Call{Seq: 8}, 1, make([]byte, 8)); g.err != nil || op.Done() && op.err != nil {
				break
			}
		}
		e.mu.Unlock()
		wantPeer(t, g.Wait(t.Context(), &op), 1, ErrLeft, "it has left the group after call #7")
	}, inProcess, overTCP) // a send through shared memory succeeds even if nobody reads it
}

// A rank that has received everything may leave at once. That must not break the send whose frame it waited for.
func TestGoodbyeDoesNotSpoilTheLastSend(t *testing.T) {
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

// Messages that wait in the link, because their receiver has no room for them, are received after their sender has said goodbye.
func TestHeldUpMessagesArriveAfterAGoodbye(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		w.holdLittle(0)
		most := make([]byte, little-8000)
		sent := make(chan error, 1)
		go func() { sent <- send(t.Context(), w.groups[2], 0, 1, most) }()
		eventuallyEarly(t, w.engines[0], 1)
		for i := range uint64(20) { // they fit in the links
			if err := send(t.Context(), w.groups[1], 0, i, pattern(int(i), 1000)); err != nil {
				t.Fatal(err)
			}
		}
		eventuallyStalled(t, w.engines[0], 1)
		w.engines[1].Close()
		if k == overBoth { // on the other fabrics the goodbye waits behind the messages
			testkit.Eventually(t, "the goodbye is heard", func() bool {
				e := w.engines[0]
				e.mu.Lock()
				defer e.mu.Unlock()
				e.look()
				return e.peer(1).control.readEnded
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

// stuff makes rank 1 send rank 0 more than rank 0 keeps, and returns when rank 0 has stopped taking it.
func stuff(t *testing.T, w *world) (sent chan error) {
	t.Helper()
	w.holdLittle(0)
	sent = make(chan error, 1)
	go func() {
		err := send(t.Context(), w.groups[1], 0, 1, make([]byte, little-8000))
		sent <- errors.Join(err, send(t.Context(), w.groups[1], 0, 2, make([]byte, 32<<20)))
	}()
	eventuallyStalled(t, w.engines[0], 1)
	return sent
}

// If a rank fails while it sends data that nobody receives, its failure is noticed at once: the abort does not wait behind the payload.
func TestFailureOvertakesAPayload(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		sent := stuff(t, w)
		waiting := make(chan error, 1)
		go func() { waiting <- receive(t.Context(), w.groups[0], 2, 9, make([]byte, 8)) }()
		eventuallyAsleep(t, w.engines[0], 1)
		w.groups[1].Fail(errors.New("out of memory"))
		wantAbort(t, within(t, func() error { return <-waiting }), 1, 1, ErrAborted)
		<-sent
	})
}

// If a rank dies while it sends data that nobody receives, its death is noticed at once.
func TestDeathOvertakesAPayload(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		w.holdLittle(0)
		p := w.puppets[2]
		message := Call{Group: worldID, Seq: 1}
		p.frame(0, kindMessage, message, make([]byte, little-8000))
		eventuallyEarly(t, w.engines[0], 1)
		p.send(0, header{kind: kindMessage, call: message}, make([]byte, 10_000), 32<<20)
		eventuallyStalled(t, w.engines[0], 2)
		waiting := make(chan error, 1)
		go func() { waiting <- receive(t.Context(), w.groups[0], 1, 9, make([]byte, 8)) }()
		eventuallyAsleep(t, w.engines[0], 1)
		p.die()
		wantPeer(t, within(t, func() error { return <-waiting }), 2, ErrLost)
	})
}

// A rank whose payload is not received still answers queries about its state, so it is not reported as stopped.
func TestStatusOvertakesAPayload(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, func(rank int, o *Options) {
			if rank == 0 {
				o.Timeout = shortly
			}
		})
		w.awaitAnswers(testkit.Patience)
		sent := stuff(t, w)
		err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 9, make([]byte, 8)) })
		wantPeer(t, err, 1, ErrTimeout, "it has not made a call yet")
		<-sent
	})
}

// A rank that violates the protocol, on either link, gets an error that says so.
func TestViolatorOfTheProtocolIsNotified(t *testing.T) {
	for name, link := range map[string]func(p *puppet) transport.Link{
		"data":    func(p *puppet) transport.Link { return p.fabric.Data(0) },
		"control": func(p *puppet) transport.Link { return p.fabric.Control(0) },
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 2, nil, 1)
				p := w.puppets[1]
				waiting := make(chan error, 1)
				go func() { waiting <- receive(t.Context(), w.groups[0], 1, 9, make([]byte, 8)) }()
				eventuallyAsleep(t, w.engines[0], 1)
				p.write(link(p), make([]byte, headerSize))
				wantPeer(t, within(t, func() error { return <-waiting }), 1, ErrProtocol)
				h, payload := p.receiveFrame(0, kindAbort)
				abort, err := decodeAbort(payload, 2)
				if h.kind != kindAbort || err != nil || abort.Rank != 1 || !errors.Is(abort, ErrProtocol) {
					t.Errorf("it got %+v, %v", abort, err)
				}
			})
		})
	}
}

// Messages, failures and leave frames for a group that this rank has not joined yet are kept until it joins.
func TestNewsWaitsForAGroupToCome(t *testing.T) {
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
			testkit.Eventually(t, "the news is there", func() bool { return hasNewsOf(w.engines[1], id) })
			late := w.join(1, id, []int{2, 0, 1})
			wantAbort(t, late.Err(), 1, 1, ErrAborted, "rank 1 gave up: bad arguments")
			if err := begin(late, Call{Seq: 1}); err != late.Err() {
				t.Errorf("a call got %v", err)
			}
			// A rank that fails later gets the first failure, too.
			wantAbort(t, w.groupAfter(2, id, []int{2, 0, 1}), 1, 1, ErrAborted)
		})
	})
	t.Run("leave", func(t *testing.T) {
		overSome(t, func(t *testing.T, k kind) {
			w := newWorld(t, k, 2, nil)
			w.join(0, id, all(2)).Close()
			testkit.Eventually(t, "the news is there", func() bool { return hasNewsOf(w.engines[1], id) })
			err := within(t, func() error { return receive(t.Context(), w.join(1, id, all(2)), 0, 1, nil) })
			wantPeer(t, err, 0, ErrLeft, "it has left the group after call #0")
		}, overTCP, overBoth)
	})
}

// hasNewsOf drives the links, and reports whether there is news of a group that the rank has not joined.
func hasNewsOf(e *Engine, id uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look()
	return e.news[id] != nil
}

// groupAfter joins a group whose failure is on its way, and returns that failure.
func (w *world) groupAfter(rank int, id uint64, members []int) error {
	g := w.join(rank, id, members)
	var op Op
	g.RecvMessage(&op, 1, tag(1), nil)
	return within(w.t, func() error { return g.Wait(context.Background(), &op) })
}

// Hostile peers cannot make an engine keep news of ever more groups.
func TestNewsIsBounded(t *testing.T) {
	w := newWorld(t, overTCP, 2, nil, 1)
	abort := (&AbortError{By: 1, Rank: 1, Reason: ErrAborted}).encode()
	for id := range uint64(maxNews + 100) {
		w.puppets[1].frame(0, kindAbort, Call{Group: 1000 + id}, abort)
		w.puppets[1].frame(0, kindLeave, Call{Group: 10_000 + id}, nil)
	}
	testkit.Eventually(t, "the rank remembers", func() bool { return hasNewsOf(w.engines[0], 1000) })
	w.puppets[1].frame(0, kindMessage, Call{Group: worldID, Seq: 1}, nil)
	if err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, nil) }); err != nil {
		t.Fatal(err)
	}
	if n := len(w.engines[0].news); n != maxNews {
		t.Errorf("%d groups are remembered, want %d", n, maxNews)
	}
}

// A rank outside a group cannot fail it, even before this rank has joined.
func TestStrangerCannotAbortAGroup(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		w.puppets[2].frame(0, kindAbort, Call{Group: 80}, (&AbortError{By: 2, Rank: 2, Reason: ErrAborted, Text: "x"}).encode())
		testkit.Eventually(t, "it is heard", func() bool { return hasNewsOf(w.engines[0], 80) })
		if err := w.join(0, 80, []int{0, 1}).Err(); err != nil {
			t.Errorf("a group without rank 2 got %v", err)
		}
	})
}

// A rank that has left after the running call has done its part in it. It is not blamed for a rank that is late, and no wait becomes
// shorter because of it. The test sends the goodbye at several times, since only an early one could shorten the wait.
func TestLeaverAfterTheCallIsNotToBlame(t *testing.T) {
	const timeout = departureWait + time.Second/2
	w := newWorld(t, overBoth, 3, func(_ int, o *Options) { o.Timeout = timeout })
	w.awaitAnswers(testkit.Patience)
	for _, g := range w.groups {
		if err := begin(g, Call{Seq: 7}); err != nil {
			t.Fatal(err)
		}
	}
	var ready atomic.Bool
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- w.groups[0].Await(t.Context(), ready.Load) }()
	eventuallyAsleep(t, w.engines[0], 1)
	end(w.groups[2])
	w.groups[2].Close()
	err := within(t, func() error { return <-done })
	if took := time.Since(start); took < timeout {
		t.Errorf("it gave up after %v, before %v", took, timeout)
	}
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	var peer *PeerError
	if errors.As(err, &peer) && peer.Rank == 2 {
		t.Errorf("rank 2 is blamed: %v", err)
	}
}

// A rank that leaves in the middle of a call never reaches its end, so the waits of others in that call fail at once.
func TestLeaverInTheCallFailsItsWaiters(t *testing.T) {
	testkit.Promptly(t, departureWait/2, func() time.Duration {
		w := newWorld(t, overBoth, 3, nil)
		for _, g := range w.groups {
			if err := begin(g, Call{Seq: 7}); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- w.groups[0].Await(t.Context(), func() bool { return false }) }()
		eventuallyAsleep(t, w.engines[0], 1)
		start := time.Now()
		w.groups[2].Close()
		wantPeer(t, within(t, func() error { return <-done }), 2, ErrLeft, "after call #6")
		return time.Since(start)
	})
}

// If one rank has left after the call, and another has left in the middle of it without a leave frame, the second one is at fault.
func TestLeaverInTheCallIsToBlame(t *testing.T) {
	w := newWorld(t, overBoth, 3, nil)
	for _, g := range w.groups {
		if err := begin(g, Call{Seq: 7}); err != nil {
			t.Fatal(err)
		}
	}
	end(w.groups[1])
	w.groups[1].Close()
	testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[0], 1) })
	w.engines[2].Close()
	err := within(t, func() error { return w.groups[0].Await(t.Context(), func() bool { return false }) })
	wantPeer(t, err, 2, ErrLeft)
}
