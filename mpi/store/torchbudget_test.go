package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// TestBudgetServesInOrder has many callers ask for bytes. They are served in the order in which they asked, including those that ask for
// little, and a caller that gives up does not delay the others.
func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &budget{most: 100}
		if err := l.take(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var served testkit.Journal
		for _, c := range []struct {
			name string
			size int
			ctx  context.Context
		}{{"large", 100, ctx}, {"small", 10, t.Context()}, {"half", 40, t.Context()}, {"more", 50, t.Context()}} {
			go func() {
				if err := l.take(c.ctx, c.size); err == nil {
					fmt.Fprintln(&served, c.name)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", c.name, err)
				}
			}()
			synctest.Wait()
		}
		if served.String() != "" {
			t.Errorf("served before there was room: %q", served.Lines())
		}
		cancel() // the large one gives up
		synctest.Wait()
		if got := served.String(); got != "small\n" || l.used != 70 {
			t.Errorf("served when the first to wait had gone: %q, with %d bytes used", got, l.used)
		}
		for i, want := range []string{"small\nhalf\n", "small\nhalf\nmore\n"} {
			l.give(30)
			synctest.Wait()
			if got := served.String(); got != want || l.used != 80+20*i {
				t.Errorf("served then: %q, with %d bytes used; want %q", got, l.used, want)
			}
		}
	})
}

// TestBudgetGivenUpIsNotLost has a caller give up just when its bytes are granted, and checks that the budget gets them back.
func TestBudgetGivenUpIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &budget{most: 1, used: 1}
		ctx, cancel := context.WithCancel(t.Context())
		taken := make(chan error, 1)
		go func() { taken <- l.take(ctx, 1) }()
		synctest.Wait()
		l.mu.Lock()
		cancel()
		l.used--
		l.grantNext()
		l.mu.Unlock()
		if err := <-taken; !errors.Is(err, context.Canceled) || l.used != 0 || len(l.waiting) != 0 {
			t.Errorf("%v; %d bytes are used, %d wait", err, l.used, len(l.waiting))
		}
	})
}

// TestManyFetchALargeValue has 64 clients ask for 8 MiB each before any of them reads. Together that exceeds what replies may hold at a
// time. All clients get the value, and none is dropped.
func TestManyFetchALargeValue(t *testing.T) {
	const clients = 64
	var log testkit.Journal
	s := serve(t, ServerConfig{Torch: true, Log: log.Logger()})
	value := strings.Repeat("v", MaxValue)
	if err := s.Set(bounded(t), "/k", []byte(value)); err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, clients)
	for i := range conns {
		get := torchHello + "\x03" + str("/k")
		if i%2 == 1 {
			get = "\x02" + str("/k")
		}
		conns[i] = dialTorch(t, s, get)
		conns[i].SetDeadline(time.Now().Add(time.Minute))
	}
	want := str(value)
	for i, err := range testkit.Each(clients, func(i int) error {
		buf, rest := make([]byte, 64<<10), want
		for rest != "" {
			n, err := conns[i].Read(buf[:min(len(buf), len(rest))])
			if string(buf[:n]) != rest[:n] {
				return errors.New("other bytes")
			}
			if rest = rest[n:]; err != nil {
				return fmt.Errorf("%d bytes missing: %w", len(rest), err)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	if log.String() != "" {
		t.Errorf("log: %s", log.String())
	}
}

// TestUnreadReplyCountsAgainstTheBudget has a client leave a large reply unread, and the reply counts against the budget until it is read.
// A client that asks for another large reply waits, and one that asks for a small reply does not.
func TestUnreadReplyCountsAgainstTheBudget(t *testing.T) {
	const size = 100 << 10
	for name, ask := range map[string]string{
		"get": "\x03" + str("k"), "multi get": "\x0a" + le8(1) + str("k"), "compare and set": "\x02" + str("k") + str("") + str(""),
		"pop": popQueue("q"),
	} {
		torchPipe(t, func(t *testing.T, near net.Conn, s *torchSession, _ <-chan error) {
			reply := str(strings.Repeat("\x00", size))
			if name == "pop" {
				reply = le8(1) + reply
			}
			s.store.Set(t.Context(), "k", make([]byte, size))
			s.store.push("q", make([]byte, size))
			s.store.Set(t.Context(), "small", nil)
			send(t, near, ask)
			synctest.Wait()
			if n := s.replies.used; n < size || n > size+1000 {
				t.Errorf("%s: %d bytes are held while the reply is sent, want about %d", name, n, size)
			}
			expectBytes(t, near, reply)
			synctest.Wait()
			if n := s.replies.used; n != 0 {
				t.Errorf("%s: %d bytes are held after the reply", name, n)
			}

			s.store.push("q", make([]byte, size))
			s.replies.take(t.Context(), MaxTorchReplies)
			send(t, near, "\x03"+str("small"))
			expectBytes(t, near, str(""))
			send(t, near, ask)
			synctest.Wait()
			if n := len(s.replies.waiting); n != 1 {
				t.Errorf("%s: %d wait, want 1", name, n)
			}
			s.replies.give(MaxTorchReplies)
			expectBytes(t, near, reply)
		})
	}
}

// TestWaitingReplyEndsWithTheServer ends a server while a reply waits for the budget.
func TestWaitingReplyEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		s := &torchSession{
			store: newMemory(), conn: far, out: bufio.NewWriter(far), replies: &budget{most: MaxTorchReplies, used: MaxTorchReplies},
			in: torchReader{r: bufio.NewReader(far), form: torch2, allowance: &budget{most: MaxTorchBytes}},
		}
		s.store.Set(t.Context(), "k", make([]byte, MaxValue))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx) }()
		send(t, near, "\x03"+str("k"))
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || len(s.replies.waiting) != 0 || s.replies.used != MaxTorchReplies {
			t.Errorf("ended with %v; %d wait, %d bytes are used", err, len(s.replies.waiting), s.replies.used)
		}
	})
}
