package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit"
)

// TestQueueBehavesLikeASlice makes the same random calls on queues and on slices.
func TestQueueBehavesLikeASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model, held := newMemory(), map[string][][]byte{}, 0
		m.maxKeys, m.maxBytes = 5, 60
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			key, value := someKey.Draw(t, "key"), someValue.Draw(t, "value")
			switch rapid.IntRange(0, 2).Draw(t, "call") {
			case 0:
				queued, bytes := 1, len(key)+len(value)
				for key, values := range model {
					for _, value := range values {
						queued, bytes = queued+1, bytes+len(key)+len(value)
					}
				}
				full := queued > m.maxKeys || bytes > m.maxBytes
				if err := m.push(key, value); errors.Is(err, ErrFull) != full || !full && err != nil {
					t.Fatalf("push of %d bytes to %d: %v", len(value), held, err)
				}
				if !full {
					model[key] = append(model[key], value)
				}
			case 1:
				n, got, err := m.pop(key, anyLength)
				if n != len(model[key]) || err != nil {
					t.Fatalf("pop of %d: %d, %v", len(model[key]), n, err)
				}
				if n > 0 {
					if !bytes.Equal(got, model[key][0]) {
						t.Fatalf("popped %q, want %q", got, model[key][0])
					}
					model[key] = model[key][1:]
				}
			case 2:
				if n, err := m.queueLen(key); n != len(model[key]) || err != nil {
					t.Fatalf("length %d, %v; want %d", n, err, len(model[key]))
				}
			}
		}
		for key, values := range model {
			for range values {
				if n, _, err := m.pop(key, anyLength); n == 0 || err != nil {
					t.Fatalf("pop: %d, %v", n, err)
				}
			}
		}
		if len(m.queues) != 0 || m.queued != 0 || m.size != 0 {
			t.Fatalf("left over: %d queues, %d values, %d bytes", len(m.queues), m.queued, m.size)
		}
	})
}

// TestQueueKeepsItsLimits pushes values that are too large, to a full store, and to a closed store.
func TestQueueKeepsItsLimits(t *testing.T) {
	m := newMemory()
	if err := m.push(strings.Repeat("k", MaxKey+1), nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a key that is too large: %v", err)
	}
	if err := m.push("q", make([]byte, MaxValue+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a value that is too large: %v", err)
	}
	m.maxKeys = 2
	for i, want := range []error{nil, nil, ErrFull} {
		if err := m.push("q", nil); !errors.Is(err, want) {
			t.Errorf("push %d: %v", i, err)
		}
	}
	if err := m.Set(t.Context(), "k", nil); !errors.Is(err, ErrFull) {
		t.Errorf("a key beside the queue: %v", err)
	}
	m.Close()
	_, _, popErr := m.pop("q", anyLength)
	_, lenErr := m.queueLen("q")
	for _, err := range []error{m.push("q", nil), popErr, lenErr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}

// awaitQueue and popQueue are what PyTorch's queue_pop(key, block=True) sends: a wait, and the pop after its reply.
func awaitQueue(key string) string { return "\x06" + le8(1) + str(key) }
func popQueue(key string) string   { return "\x0f" + str(key) }
func pushQueue(key, value string) string {
	return "\x0e" + str(key) + str(value)
}

// queueUp connects clients that wait for the queue at /q, one after another.
func queueUp(t *testing.T, s *Server, n int) []net.Conn {
	t.Helper()
	conns, before := make([]net.Conn, n), s.waiters("/q")
	for i := range conns {
		conns[i] = dialTorch(t, s, torchHello+awaitQueue("/q"))
		testkit.Eventually(t, "it waits", func() bool { return s.waiters("/q") == before+i+1 })
	}
	return conns
}

// TestQueueWakesOneForEachValue has three clients wait at a queue. A push wakes the first of them, and a value of the key wakes all.
func TestQueueWakesOneForEachValue(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	other := dialTorch(t, s, torchHello)
	conns := queueUp(t, s, 3)
	for i := range 2 {
		value := fmt.Sprint("value ", i)
		send(t, other, pushQueue("/q", value))
		expectBytes(t, conns[i], "\x00")
		send(t, conns[i], popQueue("/q"))
		expectBytes(t, conns[i], le8(1)+str(value))
		if n := s.waiters("/q"); n != 2-i {
			t.Errorf("%d wait after push %d, want %d", n, i, 2-i)
		}
	}
	conns = append(conns[2:], queueUp(t, s, 1)...)
	send(t, other, "\x01"+str("/q")+str("a value of the key"))
	for _, conn := range conns {
		expectBytes(t, conn, "\x00")
	}
}

// TestQueuePassesTheWakeup has a client that was woken leave, or ask for something else. The next client gets the value.
func TestQueuePassesTheWakeup(t *testing.T) {
	for name, instead := range map[string]func(conn net.Conn){
		"it ends":             func(conn net.Conn) { conn.Close() },
		"it says rubbish":     func(conn net.Conn) { send(t, conn, "\xff") },
		"it asks else":        func(conn net.Conn) { send(t, conn, "\x07") },
		"it pops from others": func(conn net.Conn) { send(t, conn, popQueue("/other")) },
		"it waits again":      func(conn net.Conn) { send(t, conn, awaitQueue("/nothing")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ServerConfig{Torch: true})
			conns := queueUp(t, s, 2)
			if err := s.push("/q", []byte("v")); err != nil {
				t.Fatal(err)
			}
			expectBytes(t, conns[0], "\x00")
			if n := s.waiters("/q"); n != 1 {
				t.Fatalf("%d wait, want 1", n)
			}
			instead(conns[0])
			expectBytes(t, conns[1], "\x00")
			send(t, conns[1], popQueue("/q"))
			expectBytes(t, conns[1], le8(1)+str("v"))
		})
	}
}

// TestQueueWaitEnds checks that waits at a queue end with their connections, and are forgotten.
func TestQueueWaitEnds(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	for _, conn := range queueUp(t, s, 3) {
		conn.Close()
	}
	testkit.Eventually(t, "nobody waits", func() bool { return s.awaited() == 0 })
	if err := s.push("/q", nil); err != nil {
		t.Fatal(err)
	}
	last := dialTorch(t, s, torchHello+awaitQueue("/q")+popQueue("/q"))
	expectBytes(t, last, "\x00"+le8(1)+str(""))
}

// TestQueuedValuesAreOnlyInTheQueue checks that calls which do not support queues do not see queued values.
func TestQueuedValuesAreOnlyInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		defer m.Close()
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		go func() { errs <- m.Wait(ctx, "q") }()
		go func() { _, err := m.Get(ctx, "q"); errs <- err }()
		synctest.Wait()
		if err := m.push("q", []byte("v")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		for range 2 {
			var wait *WaitError
			if err := <-errs; !errors.As(err, &wait) || wait.Absent != 1 {
				t.Errorf("error %v", err)
			}
		}
		expectList(t, m, "")
		if there, err := m.Check(t.Context(), "q"); there || err != nil {
			t.Errorf("check: %v, %v", there, err)
		}
	})
}

// TestWaiterOutlivesAStolenValue has another call pop the value for which a client was woken. The next client still waits.
func TestWaiterOutlivesAStolenValue(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	conns := queueUp(t, s, 2)
	if err := s.push("/q", nil); err != nil {
		t.Fatal(err)
	}
	expectBytes(t, conns[0], "\x00")
	if n, _, err := s.pop("/q", anyLength); n != 1 || err != nil {
		t.Fatalf("pop: %d, %v", n, err)
	}
	send(t, conns[0], "\x07")
	expectBytes(t, conns[0], le8(0))
	if n := s.waiters("/q"); n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
}

// TestCancelledWaiterPassesTheValueOn has the first waiting client give up, and a value arrive before the queue knows of that. The second
// client is woken.
func TestCancelledWaiterPassesTheValueOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		defer m.Close()
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context) <-chan error {
			errs := make(chan error, 1)
			go func() { _, err := m.waitOrPop(ctx, []string{"q"}); errs <- err }()
			synctest.Wait()
			return errs
		}
		first, second := wait(ctx), wait(t.Context())
		m.mu.Lock()
		cancel()
		m.queues["q"] = [][]byte{{}}
		m.wakePopper("q")
		m.mu.Unlock()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		if err := <-second; err != nil {
			t.Errorf("the second: %v", err)
		}
	})
}

// TestWaitForSeveralKeysLetsOthersPop waits for a queue and a key. While the key does not exist, another client may pop.
func TestWaitForSeveralKeysLetsOthersPop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		defer m.Close()
		both, one := make(chan *string, 1), make(chan *string, 1)
		go func() { wokenFor, _ := m.waitOrPop(t.Context(), []string{"q", "k"}); both <- wokenFor }()
		synctest.Wait()
		go func() { wokenFor, _ := m.waitOrPop(t.Context(), []string{"q"}); one <- wokenFor }()
		synctest.Wait()
		m.push("q", []byte("1"))
		synctest.Wait()
		if wokenFor := <-one; wokenFor == nil || *wokenFor != "q" {
			t.Errorf("who waits for the queue alone was woken for %v", wokenFor)
		}
		if n, value, err := m.pop("q", anyLength); n != 1 || string(value) != "1" || err != nil {
			t.Errorf("pop: %d, %q, %v", n, value, err)
		}
		m.Set(t.Context(), "k", nil)
		synctest.Wait()
		if len(both) != 0 {
			t.Error("who waits for both went on without the queue")
		}
		m.push("q", nil)
		if wokenFor := <-both; wokenFor == nil || *wokenFor != "q" {
			t.Errorf("who waits for both was woken for %v", wokenFor)
		}
		if n := m.awaited(); n != 0 {
			t.Errorf("%d keys are still waited for", n)
		}
	})
}

// A reply that cannot be long does not wait, even if the budget for long replies is used up.
func TestShortRepliesOvertakeLongOnes(t *testing.T) {
	m := newMemory()
	replies := &budget{most: MaxValue}
	s := &torchSession{store: m, replies: replies}
	if err := replies.take(t.Context(), MaxValue); err != nil {
		t.Fatal(err)
	}
	long := make([]byte, smallReply+1)
	if err := errors.Join(m.push("q", []byte("1")), m.push("q", long), m.Set(t.Context(), "k", []byte("old"))); err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string]*torchQuery{
		"pop":             {op: torchQueuePop, key: "q"},
		"pop of nothing":  {op: torchQueuePop, key: "none"},
		"compare and set": {op: torchCompareSet, key: "k", expected: []byte("old"), value: []byte("new")},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		if _, _, err := s.replyWithinBudget(ctx, q); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for what, q := range map[string]*torchQuery{
		"pop of much":       {op: torchQueuePop, key: "q"},
		"compare with much": {op: torchCompareSet, key: "k", expected: long, value: []byte("other")},
		"set to much":       {op: torchCompareSet, key: "k", expected: []byte("new"), value: long},
	} {
		if _, _, err := s.replyWithinBudget(ctx, q); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n, _ := m.queueLen("q"); n != 1 {
		t.Errorf("%d are queued", n)
	}
	if value, _ := m.peek("k"); string(value) != "new" {
		t.Errorf("the value became %q", value)
	}
}
