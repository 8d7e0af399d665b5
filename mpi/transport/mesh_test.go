package transport

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// exchange sends out to and receives in from a rank.
func exchange(ctx context.Context, m Mesh, peer int, out, in []byte) error {
	if err := m.Send(ctx, peer, out); err != nil {
		return err
	}
	if err := m.Recv(ctx, peer, in); err != nil {
		return err
	}
	return m.Sent(ctx, peer)
}

func pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*37 + uint64(i)*uint64(i>>8+1))
	}
	return b
}

// All ranks send before they receive, more than the sockets' buffers hold: a mesh that waited
// for its receivers would lock up.
func TestExchangeAllPairs(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		for _, n := range []int{0, 1, headerSize, readBuffer - headerSize, readBuffer + 1, MaxPayload} {
			meshes := newMeshes(t, size, nil)
			payload := make([][]byte, size*size)
			for i := range payload {
				payload[i] = pattern(uint64(i), n)
			}
			errs := testkit.Each(size, func(rank int) error {
				in := make([]byte, n)
				for round := range 4 {
					if err := meshes[rank].Begin(Call{Seq: uint64(round + 1)}); err != nil {
						return err
					}
					for peer := range size {
						if peer == rank {
							continue
						}
						if err := meshes[rank].Send(t.Context(), peer, payload[rank*size+peer]); err != nil {
							return err
						}
					}
					for peer := range size {
						if peer == rank {
							continue
						}
						if err := meshes[rank].Recv(t.Context(), peer, in); err != nil {
							return err
						}
						if !bytes.Equal(in, payload[peer*size+rank]) {
							t.Errorf("rank %d got something else of rank %d", rank, peer)
						}
					}
				}
				for peer := range size {
					if peer != rank {
						if err := meshes[rank].Sent(t.Context(), peer); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%d ranks, %d bytes: %v", size, n, err)
			}
		}
	}
}

// One rank may be far ahead: it is held up by the other's buffers, not refused.
func TestSenderAhead(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	const frames = 64
	errs := testkit.Each(2, func(rank int) error {
		m := meshes[rank]
		if err := m.Begin(Call{Seq: 1}); err != nil {
			return err
		}
		if rank == 0 {
			payload := make([]byte, MaxPayload)
			for i := range frames {
				if err := m.Sent(t.Context(), 1); err != nil {
					return err
				}
				payload[0] = byte(i) // allowed: Sent has returned
				if err := m.Send(t.Context(), 1, payload); err != nil {
					return err
				}
			}
			return m.Sent(t.Context(), 1)
		}
		in := make([]byte, MaxPayload)
		for i := range frames {
			if err := m.Recv(t.Context(), 0, in); err != nil {
				return err
			}
			if in[0] != byte(i) {
				t.Errorf("frame %d is %d", i, in[0])
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantPeerError checks that err is about rank, and matches reason.
func wantPeerError(t *testing.T, err error, rank int, reason error) {
	t.Helper()
	var at *PeerError
	if !errors.As(err, &at) || at.Rank != rank || !errors.Is(err, reason) {
		t.Errorf("got %v, want rank %d: %v", err, rank, reason)
	}
}

// wantAbort checks that err is what rank by told.
func wantAbort(t *testing.T, err error, by, rank int, reason error) {
	t.Helper()
	var told *AbortError
	if !errors.As(err, &told) || told.By != by || told.Rank != rank || !errors.Is(err, reason) {
		t.Errorf("got %v, want rank %d to tell of rank %d: %v", err, by, rank, reason)
	}
}

func TestRecvTimesOut(t *testing.T) {
	tests := []struct {
		name  string
		begun bool // rank 1 has sent a frame of this call
		text  string
	}{
		{"not_begun", false, "rank 1: no progress for 30ms: nothing has come from it yet"},
		{"begun", true, "rank 1: no progress for 30ms: it is in call #1 and waits itself, or hangs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			meshes := newMeshes(t, 2, func(cfg *Config) { cfg.Timeout = 30 * time.Millisecond })
			meshes[0].Begin(Call{Seq: 1})
			if tt.begun {
				meshes[1].Begin(Call{Seq: 1})
				meshes[1].Send(t.Context(), 0, nil)
				if err := meshes[0].Recv(t.Context(), 1, nil); err != nil {
					t.Fatal(err)
				}
			}
			err := meshes[0].Recv(t.Context(), 1, make([]byte, 8))
			wantPeerError(t, err, 1, ErrTimeout)
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %q, want %q", err, tt.text)
			}
			if again := meshes[0].Begin(Call{Seq: 2}); again != err {
				t.Errorf("later got %v, want the first failure", again)
			}
			testkit.Within(t, testkit.Moment, func() { err = meshes[1].Recv(t.Context(), 0, nil) })
			wantAbort(t, err, 0, 1, ErrTimeout)
		})
	}
}

func TestSentTimesOut(t *testing.T) {
	meshes := newMeshes(t, 2, func(cfg *Config) { cfg.Timeout = 50 * time.Millisecond })
	payload := make([]byte, MaxPayload)
	var err error
	for range 100 { // until the sockets hold no more
		if err = meshes[0].Send(t.Context(), 1, payload); err != nil {
			break
		}
	}
	wantPeerError(t, err, 1, ErrTimeout)
}

// fill sends payload to a rank that does not receive, again and again, and returns when the sockets are
// full. What comes of it is the first error.
func fill(ctx context.Context, t *testing.T, m *TCP, to int, payload []byte) chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		for {
			if err := m.Send(ctx, to, payload); err != nil {
				done <- err
				return
			}
		}
	}()
	testkit.Eventually(t, "the sockets are full", func() bool {
		p := m.peers[to]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.partial
	})
	return done
}

func TestCancel(t *testing.T) {
	for _, when := range []string{"before_the_frame", "in_the_payload", "sending"} {
		t.Run(when, func(t *testing.T) {
			meshes := newMeshes(t, 2, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("the user said so")
			buf := make([]byte, MaxPayload)
			done := make(chan error, 1)
			switch when {
			case "before_the_frame", "in_the_payload":
				p := meshes[0].peers[1]
				go func() { done <- meshes[0].Recv(ctx, 1, buf) }()
				testkit.Eventually(t, "Recv waits", func() bool { return len(p.post) == 1 })
				if when == "in_the_payload" {
					// A frame of which only a part arrives.
					var head [headerSize]byte
					header{kind: kindData, length: MaxPayload}.encode(&head)
					meshes[1].peers[0].conn.Write(append(head[:], make([]byte, 1000)...))
					testkit.Eventually(t, "the reader has the buffer", func() bool { return len(p.post) == 0 })
				}
			case "sending":
				done = fill(ctx, t, meshes[0], 1, buf)
			}
			var err error
			testkit.Within(t, testkit.Moment, func() {
				cancel(why)
				err = <-done
			})
			wantPeerError(t, err, 1, context.Canceled)
			if !errors.Is(err, why) {
				t.Errorf("%v does not tell the cause", err)
			}
			// The buffer is the caller's again: the race detector would see the mesh in it.
			for i := range buf {
				buf[i] = 1
			}
			// The other rank learns why, or at least that the stream has ended.
			testkit.Within(t, testkit.Moment, func() { err = meshes[1].Recv(t.Context(), 0, make([]byte, 8)) })
			if when != "sending" {
				wantAbort(t, err, 0, 0, ErrAborted)
			} else if err == nil {
				t.Error("rank 1 received what was not sent")
			}
		})
	}
}

func TestPeerDies(t *testing.T) {
	meshes := newMeshes(t, 3, nil)
	done := make(chan error, 1)
	go func() { done <- meshes[0].Recv(t.Context(), 1, make([]byte, 8)) }() // 1 is fine, 2 dies
	var err error
	testkit.Within(t, testkit.Moment, func() {
		for _, p := range meshes[2].peers[:2] {
			p.conn.Close() // as the system does when a process ends
		}
		err = <-done
	})
	// Rank 0 sees it for itself, or hears it from rank 1.
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "rank 2") {
		t.Errorf("got %v, want rank 2 to be lost", err)
	}
}

func TestPeerDiesInFrame(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	var head [headerSize]byte
	header{kind: kindData, length: 1000}.encode(&head)
	conn := meshes[1].peers[0].conn
	conn.Write(append(head[:], 1, 2, 3))
	conn.CloseWrite()
	err := meshes[0].Recv(t.Context(), 1, make([]byte, 1000))
	wantPeerError(t, err, 1, ErrLost)
	if !strings.Contains(err.Error(), "in the middle of a frame") {
		t.Error(err)
	}
}

// The death is noticed by writing, while the reader is held up by a frame that
// nobody has asked for.
func TestWriteToDeadPeer(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	meshes[1].Begin(Call{Seq: 1})
	meshes[1].Send(t.Context(), 0, make([]byte, 8))
	testkit.Eventually(t, "the frame is there", func() bool { return meshes[0].peers[1].last.Load() == 1 })
	conn := meshes[1].peers[0].conn
	conn.SetLinger(0) // a reset, as when a process dies with data unread
	conn.Close()
	meshes[0].Begin(Call{Seq: 1})
	var err error
	testkit.Within(t, testkit.Moment, func() {
		for err == nil {
			err = meshes[0].Send(t.Context(), 1, nil)
		}
	})
	wantPeerError(t, err, 1, ErrLost)
}

// A goodbye is no failure, until one needs that rank.
func TestPeerLeaves(t *testing.T) {
	meshes := newMeshes(t, 3, nil)
	for _, m := range meshes {
		m.Begin(Call{Seq: 1})
	}
	meshes[2].Send(t.Context(), 0, []byte("last words"))
	meshes[2].Close()
	last := make([]byte, len("last words"))
	if err := meshes[0].Recv(t.Context(), 2, last); err != nil || string(last) != "last words" {
		t.Errorf("received %q, %v", last, err)
	}
	<-meshes[0].peers[2].gone
	<-meshes[1].peers[2].gone
	errs := testkit.Each(2, func(rank int) error { return exchange(t.Context(), meshes[rank], 1-rank, []byte("x"), make([]byte, 1)) })
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("the ranks that stayed: %v", err)
	}
	err := meshes[0].Recv(t.Context(), 2, last)
	wantPeerError(t, err, 2, ErrLeft)
	if !strings.Contains(err.Error(), "after call #1") {
		t.Error(err)
	}
	err = meshes[1].Send(t.Context(), 2, last)
	if !errors.Is(err, ErrLeft) {
		t.Errorf("sending got %v", err)
	}
}

func TestClosed(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	meshes[0].Close()
	if err := meshes[0].Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	for name, err := range map[string]error{
		"begin": meshes[0].Begin(Call{Seq: 1}),
		"send":  meshes[0].Send(t.Context(), 1, nil),
		"recv":  meshes[0].Recv(t.Context(), 1, nil),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestSendRefusesLongPayload(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	meshes[0].Send(t.Context(), 1, make([]byte, MaxPayload+1))
}

func TestNoAllocations(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	buf := [2][]byte{make([]byte, 100<<10), make([]byte, 100<<10)}
	in := [2][]byte{make([]byte, 100<<10), make([]byte, 100<<10)}
	go1, done1 := make(chan uint64), make(chan error)
	defer close(go1)
	go func() {
		for seq := range go1 {
			meshes[1].Begin(Call{Seq: seq})
			done1 <- exchange(t.Context(), meshes[1], 0, buf[1], in[1])
		}
	}()
	seq := uint64(0)
	allocs := testing.AllocsPerRun(500, func() {
		seq++
		go1 <- seq
		meshes[0].Begin(Call{Seq: seq})
		if err := errors.Join(exchange(t.Context(), meshes[0], 1, buf[0], in[0]), <-done1); err != nil {
			t.Error(err)
		}
	})
	if allocs >= 1 {
		t.Errorf("%v allocations for an exchange of two ranks", allocs)
	}
}
