package store

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// torchPipe serves one PyTorch client of the later form over a pipe, in a bubble of synctest.
func torchPipe(t *testing.T, test func(t *testing.T, near net.Conn, s *torchSession, ended <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := &torchSession{
			store: newMemory(), conn: far, out: bufio.NewWriter(far), replies: &replyLine{most: MaxTorchReplies},
			in: torchReader{r: bufio.NewReader(far), form: torch2, allowance: &allowance{most: MaxTorchBytes}},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx) }()
		test(t, near, s, ended)
		cancel()
		near.Close()
		synctest.Wait()
		if n := s.in.allowance.used.Load(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		if n := s.replies.used; n != 0 {
			t.Errorf("%d bytes of replies are still held", n)
		}
	})
}

// TestTorchSilence has a client say nothing for an hour, before a query and within a wait.
func TestTorchSilence(t *testing.T) {
	torchPipe(t, func(t *testing.T, near net.Conn, _ *torchSession, _ <-chan error) {
		time.Sleep(time.Hour)
		say(t, near, "\x06"+le8(1)+str("/k"))
		time.Sleep(time.Hour)
		say(t, near, "\x0c")
		hear(t, near, "\x01")
	})
}

// TestTorchSlowQuery has a query come byte by byte, and never whole.
func TestTorchSlowQuery(t *testing.T) {
	torchPipe(t, func(t *testing.T, near net.Conn, _ *torchSession, ended <-chan error) {
		begin := time.Now()
		var dripping sync.WaitGroup
		defer dripping.Wait()
		dripping.Go(func() {
			for _, b := range []byte("\x01" + le8(1000) + "a key, slowly, that does not end before it is cut off") {
				if _, err := near.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != torchQueryTime {
			t.Errorf("ended after %v: %v", time.Since(begin), err)
		}
	})
}

// TestTorchTakesNoReply has a client not read what it asked for.
func TestTorchTakesNoReply(t *testing.T) {
	torchPipe(t, func(t *testing.T, near net.Conn, _ *torchSession, ended <-chan error) {
		begin := time.Now()
		say(t, near, "\x07")
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != torchQueryTime {
			t.Errorf("ended after %v: %v", time.Since(begin), err)
		}
	})
}

// TestTorchAllowance has clients send more than all of them may.
func TestTorchAllowance(t *testing.T) {
	a := &allowance{most: 100}
	for _, c := range []struct {
		size int
		ok   bool
	}{{60, true}, {41, false}, {40, true}, {1, false}, {0, true}} {
		if ok := a.take(c.size); ok != c.ok {
			t.Errorf("take %d of 100: %v", c.size, ok)
		}
	}
	a.give(100)
	if !a.take(100) {
		t.Error("what was given back is lost")
	}
}

// TestTorchClientsAreBounded comes when all places are taken, or all files that there may be.
func TestTorchClientsAreBounded(t *testing.T) {
	for files, clients := range map[int]int64{1 << 20: MaxTorchClients, 100: 100} {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		d := &torchDoor{ctx: t.Context(), store: newMemory(), files: files}
		d.places.Store(clients)
		if err := d.serve(far, nil, torch2); err == nil || d.places.Load() != clients {
			t.Errorf("%d files: error %v, %d places", files, err, d.places.Load())
		}
		d.places.Store(clients - 1)
		if err := d.serve(far, nil, torch1); err == nil || d.places.Load() != clients-1 {
			t.Errorf("%d files, of 1.13: error %v, %d places", files, err, d.places.Load())
		}
	}
}
