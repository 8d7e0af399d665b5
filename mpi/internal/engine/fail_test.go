package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// The death of a process is at once an error of every wait, for that rank or another. All errors name the rank that died.
func TestDeathIsAnErrorAtOnce(t *testing.T) {
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
			wantText(t, err, "rank 2: connection lost: its process ended without closing its Comm, or was killed")
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

// If a rank dies in the middle of a frame, the receive fails, whether it was posted before or after that. The part that came is not kept.
func TestDeathInAFrameFailsTheReceive(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		for _, posted := range []bool{false, true} {
			for _, n := range []int{0, 1000, 100_000} {
				w := newWorld(t, k, 2, nil, 1)
				in := make([]byte, 200_000)
				var op Op
				if posted {
					w.groups[0].RecvMessage(&op, 1, tag(1), in)
				}
				w.puppets[1].send(0, header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}}, make([]byte, n), uint64(len(in)))
				if !posted {
					testkit.Eventually(t, "a part is there",
						func() bool { earlyMessages(w.engines[0]); return w.engines[0].earlyBytes > 0 })
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

// Half a header is neither a frame nor a regular end.
func TestHalfAHeaderIsNotAFrame(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		p := w.puppets[1]
		p.write(p.fabric.Control(0), []byte("dM\x02"))
		p.die()
		wantPeer(t, within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, nil) }), 1, ErrLost, "unexpected EOF")
	})
}

// If a rank dies, a send to it that is under way fails, and Close does not wait for it.
func TestDeathEndsASendUnderWay(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		testkit.Promptly(t, closeLimit/2, func() time.Duration {
			w := newWorld(t, k, 2, nil, 1)
			payload := make([]byte, 16<<20)
			done := make(chan error, 1)
			w.puppets[1].frame(0, kindLeave, Call{}, nil)
			if k == inProcess { // a Network takes everything at once
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
			w.engines[0].Close() // nothing remains to be written
			return time.Since(start)
		})
	})
}

// A network that silently loses everything is noticed at the time-out, and the error names the silent rank.
func TestSilentNetworkIsNoticedAtTheTimeout(t *testing.T) {
	t.Parallel()
	const text = "rank 2: no progress for 100ms: it does not answer: it is stopped, or its machine or the network has failed"
	withAnswers(t, text, func(limit time.Duration) []error {
		w := newWorld(t, inProcess, 3, nil)
		w.each(func(rank int, g *Group) error { // every link has been used
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
		w.shortenAnswerTimeout()
		w.awaitAnswers(limit) // ranks 0 and 1 answer, and rank 2 never does
		w.net.Cut(0, 2)
		w.net.Cut(1, 2)
		errs := testkit.Each(2, func(rank int) error {
			if err := begin(w.groups[rank], Call{Seq: 2}); err != nil {
				return err
			}
			var r Op
			w.groups[rank].Recv(&r, 1-rank, nil) // the silent rank is not the one waited for
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

// Frames that are lost in one direction are noticed, too, and a slow link is not mistaken for a dead one.
func TestLostFramesAreNoticedAndSlowOnesNot(t *testing.T) {
	t.Parallel()
	var w *world
	withMoreTime(t, 20*shortly, func(timeout time.Duration) error {
		w = newWorld(t, inProcess, 2, func(_ int, o *Options) { o.Timeout = timeout })
		w.net.Delay(timeout / 4)
		for range 6 { // longer than the time-out in total
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
	w.shortenAnswerTimeout()
	w.net.Drop(func(from, to int) bool { return from == 1 })
	err := within(t, func() error {
		w.groups[1].Fail(errors.New("unheard"))
		return receive(t.Context(), w.groups[0], 1, 2, nil)
	})
	wantPeer(t, err, 1, ErrTimeout, "it does not answer")
}

// A rank that has said goodbye does not answer any more, but is not reported as stopped.
func TestGoodbyeIsNotSilence(t *testing.T) {
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 4, func(rank int, o *Options) {
			if rank == 0 {
				o.Timeout = shortly
			}
		})
		w.holdLittle(0)
		w.awaitAnswers(testkit.Patience)
		sent := make(chan error, 1)
		go func() { sent <- send(t.Context(), w.groups[2], 0, 1, make([]byte, little-8000)) }()
		eventuallyEarly(t, w.engines[0], 1)
		for i := range uint64(20) { // they fit in the links
			if err := send(t.Context(), w.groups[1], 0, i, pattern(int(i), 1000)); err != nil {
				t.Fatal(err)
			}
		}
		eventuallyStalled(t, w.engines[0], 1)
		w.engines[1].Close()
		testkit.Eventually(t, "the goodbye is heard", func() bool {
			e := w.engines[0]
			e.mu.Lock()
			defer e.mu.Unlock()
			e.look()
			return e.peer(1).control.readEnded
		})
		if err := errors.Join(begin(w.groups[0], Call{Seq: 1}), begin(w.groups[2], Call{Seq: 1})); err != nil {
			t.Fatal(err)
		}
		var r Op
		w.groups[0].Recv(&r, 3, nil) // rank 3 never comes
		wantPeer(t, within(t, func() error { return w.groups[0].Wait(t.Context(), &r) }), 3, ErrTimeout)
		<-sent
	}, overTCP, overBoth)
}

// breaking is a fabric whose data links a test can break.
type breaking struct {
	transport.Fabric
	broken *atomic.Bool
}

type breakingLink struct {
	transport.Link
	broken *atomic.Bool
}

func (f breaking) Data(rank int) transport.Link { return breakingLink{f.Fabric.Data(rank), f.broken} }

func (l breakingLink) Read(buf []byte) (int, error) {
	if l.broken.Load() {
		return 0, errors.New("connection reset by peer")
	}
	return l.Link.Read(buf)
}

// If the data link breaks on one side only, the control link notifies the other side.
func TestBrokenDataLinkShowsOnTheControlLink(t *testing.T) {
	fabrics, _ := join(t, overTCP, 2)
	var broken atomic.Bool
	fabrics[0] = breaking{fabrics[0], &broken}
	var groups [2]*Group
	for rank, f := range fabrics {
		e := New(f, Options{Timeout: testkit.Patience, Describe: describeCall, DescribeFully: detail})
		defer e.Close()
		g, err := e.Group(worldID, all(2))
		if err != nil {
			t.Fatal(err)
		}
		groups[rank] = g
	}
	done := make(chan error, 1)
	go func() { done <- receive(t.Context(), groups[1], 0, 1, make([]byte, 8)) }()
	eventuallyAsleep(t, groups[1].e, 1)
	broken.Store(true)
	go receive(t.Context(), groups[0], 1, 1, make([]byte, 8))
	err := within(t, func() error { return <-done })
	if !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
	wantText(t, err, "connection reset by peer")
}

// If a data link ends without a goodbye while the control link stays open, the peer counts as lost, though not at once.
func TestDataLinkThatEndsIsThePeersEnd(t *testing.T) {
	f, _, data := newScripted(false)
	e, _, lenient := onScript(t, f)
	var r Op
	lenient.RecvMessage(&r, 1, tag(3), make([]byte, 10))
	data.comes(0)
	e.lookOnce()
	wantPeer(t, within(t, func() error { return lenient.Wait(t.Context(), &r) }), 1, ErrLost)
}

// A send that fails does not lose data that arrived before.
func TestBrokenSendKeepsWhatCame(t *testing.T) {
	f, control, data := newScripted(false)
	e, _, lenient := onScript(t, f)
	data.add(kindMessage, Call{Group: lenientID, Seq: 3}, []byte("last words"))
	data.comes(1000)
	data.breaks()
	var s, r Op
	lenient.SendMessage(&s, 1, tag(1), []byte("x"))
	control.breaks()
	control.comes(0)
	e.lookOnce()
	in := make([]byte, 10)
	lenient.RecvMessage(&r, 1, tag(3), in)
	if err := within(t, func() error { return lenient.Wait(t.Context(), &r) }); err != nil || string(in) != "last words" {
		t.Errorf("got %q, %v", in, err)
	}
}

// A receive from any rank ends at once if no other rank is left.
func TestReceiveFromAnyEndsWhenAllLeft(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		w.puppets[1].bye(0)
		testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[0], 1) })
		err := within(t, func() error { return receive(t.Context(), w.groups[0], Any, 1, make([]byte, 8)) })
		if !errors.Is(err, ErrLeft) {
			t.Errorf("got %v", err)
		}
	})
}

const lenientID = 20

// lenientGroups makes every rank with an engine a member of a group that outlives its members.
func (w *world) lenientGroups() []*Group {
	w.t.Helper()
	groups := make([]*Group, len(w.engines))
	for rank, e := range w.engines {
		if e == nil {
			continue
		}
		g, err := e.LenientGroup(lenientID, all(len(w.engines)))
		if err != nil {
			w.t.Fatal(err)
		}
		groups[rank] = g
	}
	return groups
}

// In a lenient group the end of a rank is an error only of the operations that need that rank, whether it ended before the group was made,
// while another rank waited for it, or in between.
func TestLenientGroupOutlivesARank(t *testing.T) {
	for _, when := range []string{"before", "while_receiving", "while_sending", "between"} {
		for name, gone := range map[string]struct {
			do     func(*puppet)
			reason error
		}{
			"death":  {func(p *puppet) { p.die() }, ErrLost},
			"bye":    {func(p *puppet) { p.bye(0) }, ErrLeft},
			"leaves": {func(p *puppet) { p.frame(0, kindLeave, Call{Group: lenientID}, nil) }, ErrLeft},
		} {
			if when == "while_sending" && name == "leaves" {
				continue // a rank that has left the group still takes what is sent to it
			}
			t.Run(when+"/"+name, func(t *testing.T) {
				overAll(t, func(t *testing.T, k kind) {
					w := newWorld(t, k, 3, nil, 2)
					w.puppets[2].frame(0, kindLeave, Call{}, nil)
					done := make(chan error, 1)
					learn := func(g *Group) {
						testkit.Eventually(t, "the end is noticed", func() bool { return hasLeft(g, 2) })
					}
					var groups []*Group
					if when == "before" {
						gone.do(w.puppets[2])
						if name == "leaves" {
							testkit.Eventually(t, "the news is there", func() bool { return hasNewsOf(w.engines[0], lenientID) })
						} else {
							learn(w.groups[0])
						}
						groups = w.lenientGroups()
					} else {
						groups = w.lenientGroups()
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
						learn(groups[0])
						fallthrough
					default:
						gone.do(w.puppets[2])
						learn(groups[0])
						go func() { done <- receive(t.Context(), groups[0], 2, 1, make([]byte, 4)) }()
					}
					wantPeer(t, within(t, func() error { return <-done }), 2, gone.reason)
					wantPeer(t, within(t, func() error { return send(t.Context(), groups[0], 2, 1, nil) }), 2, gone.reason)
					if err := errors.Join(groups[0].Err(), groups[1].Err()); err != nil {
						t.Errorf("the group failed: %v", err)
					}
					errs := testkit.Each(2, func(rank int) error {
						return errors.Join(send(t.Context(), groups[rank], 1-rank, 1, []byte("x")),
							receive(t.Context(), groups[rank], 1-rank, 1, make([]byte, 1)))
					})
					if err := errors.Join(errs...); err != nil {
						t.Errorf("the ranks that remain: %v", err)
					}
				})
			})
		}
	}
}

// Data that a rank sent before it ended is received, even if its end is noticed first.
func TestLenientGroupReceivesLastWords(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		g := w.lenientGroups()[0]
		w.puppets[1].frame(0, kindMessage, Call{Group: lenientID, Seq: 3}, []byte("last words"))
		w.puppets[1].send(0, header{kind: kindMessage, call: Call{Group: lenientID, Seq: 4}}, []byte("a part"), 100)
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
