package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// A rank that has left after the call that runs has done its part in it: it is not to blame for who is late.
func TestLeaverAfterTheCall(t *testing.T) {
	w := newWorld(t, overBoth, 3, func(_ int, o *Options) { o.Timeout = patience + time.Second/2 })
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
	if took := time.Since(start); took < patience+time.Second/4 {
		t.Errorf("it gave up after %v", took)
	}
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	var peer *PeerError
	if errors.As(err, &peer) && peer.Rank == 2 {
		t.Errorf("rank 2 is blamed: %v", err)
	}
}

// A rank that has said goodbye answers nothing any more, and is not said to be stopped.
func TestByeIsNotSilence(t *testing.T) {
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
		for i := range uint64(20) { // they fit into the links
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
			return e.peer(1).control.over
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

// breaking is a fabric whose data links break when they are told to.
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

// Where the data link breaks on one side alone, the other side is told by the control link.
func TestDataLinkAloneBreaks(t *testing.T) {
	fabrics, _ := join(t, overTCP, 2)
	var broken atomic.Bool
	fabrics[0] = breaking{fabrics[0], &broken}
	var groups [2]*Group
	for rank, f := range fabrics {
		e := New(f, Options{Timeout: testkit.Patience, Describe: describeCall})
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

// A data link that ends without a goodbye, beside a control link that goes on, is the end of the peer, though not at once.
func TestDataLinkAloneEnds(t *testing.T) {
	f, _, data := newScripted(false)
	e, _, lenient := onScript(t, f)
	var r Op
	lenient.RecvMessage(&r, 1, tag(3), make([]byte, 10))
	data.comes(0)
	e.lookOnce()
	wantPeer(t, within(t, func() error { return lenient.Wait(t.Context(), &r) }), 1, ErrLost)
}

// A send that fails loses nothing of what has come before.
func TestBrokenSendKeepsWhatCame(t *testing.T) {
	f, control, data := newScripted(false)
	e, _, lenient := onScript(t, f)
	data.add(kindMessage, Call{Group: remainsID, Seq: 3}, []byte("last words"))
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

// A receive from any rank that is posted when no other is left ends at once.
func TestAnyAfterAllLeft(t *testing.T) {
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

// Who is not of a group cannot fail it before this rank is of it, either.
func TestAbortByStranger(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		w.puppets[2].frame(0, kindAbort, Call{Group: 80}, (&AbortError{By: 2, Rank: 2, Reason: ErrAborted, Text: "x"}).encode())
		testkit.Eventually(t, "it is heard", func() bool { return heardOf(w.engines[0], 80) })
		if err := w.join(0, 80, []int{0, 1}).Err(); err != nil {
			t.Errorf("a group without rank 2 got %v", err)
		}
	})
}

// A rank that leaves in the middle of a call never comes to its end: who waits for it in that call fails at once.
func TestLeaverInTheCall(t *testing.T) {
	testkit.Promptly(t, patience/2, func() time.Duration {
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

// Where one rank has left after the call, and another in the middle of it without saying so, the second is to blame.
func TestUnsureIsToBlame(t *testing.T) {
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
