package engine

import (
	"bytes"
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
)

// If a part of a message has come before its receive is posted, the rest goes on into the receive's buffer.
func TestReceivePostedLateGetsTheWholeMessage(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		payload := pattern(1, 100_000)
		for cut := 0; cut <= 1; cut++ {
			call := Call{Group: worldID, Seq: 5}
			at := cut * 60_000
			w.puppets[1].send(0, header{kind: kindMessage, call: call}, payload[:at], uint64(len(payload)))
			testkit.Eventually(t, "a part is there", func() bool {
				earlyMessages(w.engines[0])
				w.engines[0].mu.Lock()
				defer w.engines[0].mu.Unlock()
				in := &w.engines[0].peer(1).data.in
				return in.early != nil && in.got == uint64(at)
			})
			in := make([]byte, len(payload))
			var op Op
			w.groups[0].RecvMessage(&op, 1, tag(5), in)
			if op.Done() {
				t.Fatal("done before the message has come")
			}
			w.puppets[1].write(w.puppets[1].lane(0, kindMessage), payload[at:])
			if err := within(t, func() error { return w.groups[0].Wait(t.Context(), &op) }); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(in, payload) {
				t.Errorf("something else was received after %d bytes", at)
			}
		}
		wantNothingHeld(t, w.engines[0])
	})
}

// Data beyond the limit of an engine waits in the link and blocks its sender. Nothing is lost, the order is kept, and the other pairs and
// the other direction go on.
func TestFloodWaitsInTheLink(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		w.holdLittle(0)
		const long, longs = little/2 + 1, 3
		payload := pattern(3, long)
		flooded := make(chan error, 1)
		go func() {
			for i := range longs {
				if err := send(t.Context(), w.groups[1], 0, uint64(i), payload); err != nil {
					flooded <- err
					return
				}
			}
			flooded <- send(t.Context(), w.groups[1], 0, 99, []byte("last"))
		}()
		eventuallyEarly(t, w.engines[0], 1)
		eventuallyStalled(t, w.engines[0], 1)
		if err := within(t, func() error {
			return errors.Join(send(t.Context(), w.groups[0], 1, 1, []byte("x")), send(t.Context(), w.groups[2], 0, 0, nil),
				receive(t.Context(), w.groups[0], 2, 0, nil), receive(t.Context(), w.groups[1], 0, 1, make([]byte, 1)))
		}); err != nil {
			t.Fatal(err)
		}
		wantBoundHeld(t, w.engines[0])
		in := make([]byte, long)
		for i := range longs {
			clear(in)
			if err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, uint64(i), in) }); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(in, payload) {
				t.Errorf("message %d is another one", i)
			}
		}
		if err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 99, in) }); err != nil {
			t.Fatal(err)
		}
		if err := within(t, func() error { return <-flooded }); err != nil {
			t.Error(err)
		}
		wantNothingHeld(t, w.engines[0])
	})
}

func TestMessageLongerThanIsKept(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		w.holdLittle(0)
		payload := pattern(4, little+1)
		sent := make(chan error, 1)
		go func() { sent <- send(t.Context(), w.groups[1], 0, 1, payload) }()
		eventuallyStalled(t, w.engines[0], 1)
		in := make([]byte, len(payload))
		if err := within(t, func() error { return errors.Join(receive(t.Context(), w.groups[0], Any, 1, in), <-sent) }); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in, payload) {
			t.Error("something else was received")
		}
	})
}

// Two ranks send more than can be kept. While there is no room, a receive is posted for a message behind those of the second rank, and
// waits. Then the messages of the first rank are received, which makes room. The second rank sends nothing new that would wake a waiter.
func TestRoomIsMadeForAnother(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		w.holdLittle(0)
		most := make([]byte, little-8000)
		sent := make(chan error, 2)
		go func() { sent <- send(t.Context(), w.groups[1], 0, 1, most) }()
		eventuallyEarly(t, w.engines[0], 1)
		go func() {
			sent <- errors.Join(send(t.Context(), w.groups[2], 0, 1, make([]byte, 9000)),
				send(t.Context(), w.groups[2], 0, 2, []byte("behind")))
		}()
		eventuallyStalled(t, w.engines[0], 2)
		in := make([]byte, 6)
		waiting := make(chan error, 1)
		go func() { waiting <- receive(t.Context(), w.groups[0], 2, 2, in) }()
		eventuallyAsleep(t, w.engines[0], 1)
		if err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, make([]byte, len(most))) }); err != nil {
			t.Fatal(err)
		}
		if err := within(t, func() error { return <-waiting }); err != nil || string(in) != "behind" {
			t.Errorf("received %q, %v", in, err)
		}
		if err := within(t, func() error { return errors.Join(<-sent, <-sent) }); err != nil {
			t.Error(err)
		}
	})
}

// Messages with few or no bytes also use memory, and a flood of them is bounded.
func TestFloodOfSmallMessagesIsBounded(t *testing.T) {
	w := newWorld(t, overTCP, 2, nil, 1)
	w.holdLittle(0)
	one := make([]byte, headerSize)
	h := header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}}
	h.encode((*[headerSize]byte)(one))
	many := bytes.Repeat(one, 4096)
	link := w.puppets[1].lane(0, kindMessage)
	var rest []byte
	testkit.Eventually(t, "the sender is held up", func() bool {
		if len(rest) == 0 {
			rest = many
		}
		n, err := link.Write(rest, nil)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		e := w.engines[0]
		e.mu.Lock()
		e.look()
		stalled := e.peer(1).data.in.stalled
		e.mu.Unlock()
		wantBoundHeld(t, e)
		return stalled
	})
	kept := earlyMessages(w.engines[0])
	if most := little / smallest; kept == 0 || kept > most {
		t.Errorf("%d messages are kept, want some, and not more than %d", kept, most)
	}
}

// wantBoundHeld checks that an engine holds no more than it may.
func wantBoundHeld(t testing.TB, e *Engine) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if most := e.earlyLimit + smallest; e.earlyBytes > most { // one message may take all the room
		t.Fatalf("%d bytes are held, more than %d", e.earlyBytes, most)
	}
}

// The pool's memory for early messages has room for each length, and is used again up to a limit.
func TestPoolUsesMemoryAgain(t *testing.T) {
	var p pool
	for _, n := range []int{0, 1, smallest - 1, smallest, smallest + 1, 100_000, maxSpare - 1, maxSpare, maxSpare + 1, 64<<20 + 1} {
		m := p.get(n)
		if len(m.buf) != n || cap(m.buf) < n || cap(m.buf) > max(2*n, smallest) {
			t.Errorf("%d bytes of %d for a message of %d", len(m.buf), cap(m.buf), n)
		}
		p.put(m)
		if again := p.get(n); n <= maxSpare/2 && again != m {
			t.Errorf("the memory of a message of %d bytes is not used again", n)
		}
	}
	if p.size < 0 || p.size > maxSpare {
		t.Errorf("%d bytes are kept", p.size)
	}
}

// Messages that are announced and never arrive hold no memory after their sender has died.
func TestAnnouncedAndNotSent(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		for id := range uint64(3) {
			w.puppets[1].send(0, header{kind: kindMessage, call: Call{Group: 70 + id}}, nil, 64<<20+1)
		}
		w.puppets[1].die()
		wantPeer(t, within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, nil) }), 1, ErrLost)
		wantNothingHeld(t, w.engines[0])
	})
}

// eventuallyStalled waits until an engine has no room for what arrives from a rank.
func eventuallyStalled(t testing.TB, e *Engine, from int) {
	t.Helper()
	testkit.Eventually(t, "a message waits for room", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.look()
		return e.peer(from).data.in.stalled
	})
}

// wantNothingHeld checks that no memory is held for early messages.
func wantNothingHeld(t testing.TB, e *Engine) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.earlyBytes != 0 {
		t.Errorf("%d bytes are held for nobody", e.earlyBytes)
	}
	if e.spare.size > maxSpare {
		t.Errorf("%d bytes are kept for later, more than %d", e.spare.size, maxSpare)
	}
}

// eventuallyAsleep waits until n goroutines sleep in an engine.
func eventuallyAsleep(t testing.TB, e *Engine, n int) {
	t.Helper()
	testkit.Eventually(t, "all waiting goroutines sleep", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.sleepers) == n
	})
}
