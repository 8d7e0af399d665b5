package engine

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// Data from a peer is checked before it is used. If it is invalid, only the groups of that peer fail.
func TestHostilePeerEndsAlone(t *testing.T) {
	call := Call{Group: worldID}
	frame := func(h header) func(*puppet) {
		return func(p *puppet) { p.send(0, h, nil, h.length) }
	}
	tests := []struct {
		name string
		send func(p *puppet)
		text string
	}{
		{"rubbish", func(p *puppet) { p.write(p.fabric.Control(0), bytes.Repeat([]byte("HTTP"), 20)) },
			"a frame that begins with 48 54 54 50"},
		{"huge", frame(header{kind: kindMessage, call: call, length: maxPayload + 1}), "with 1099511627777 bytes"},
		{"abort_without_words", func(p *puppet) { p.frame(0, kindAbort, call, nil) }, "an abort of 0 bytes"},
		{"abort_by_nobody", func(p *puppet) { p.frame(0, kindAbort, call, []byte("\x09\x00\x00\x00\x00\x00\x00\x00\x00")) },
			"an abort by rank 9"},
		{"status_without_words", func(p *puppet) { p.frame(0, kindStatus, call, nil) }, "a status of 0 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 3, nil, 1)
				pair := w.join(0, 80, []int{0, 2})
				tt.send(w.puppets[1])
				err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 1, make([]byte, 8)) })
				wantPeer(t, err, 1, ErrProtocol, tt.text)
				if err := pair.Err(); err != nil {
					t.Errorf("a group without that rank got %v", err)
				}
			})
		})
	}
}

// If payloads have a link of their own, they are accepted only on that link, and no other frame is.
func TestFrameOnTheWrongLinkIsRefused(t *testing.T) {
	for name, k := range map[string]frameKind{"message": kindMessage, "collective": kindCollective, "query": kindQuery} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, overBoth, 2, nil, 1)
			p := w.puppets[1]
			in := make([]byte, 100_000)
			var op Op
			w.groups[0].RecvMessage(&op, 1, tag(1), in)
			p.send(0, header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}}, in[:10_000], uint64(len(in))) // under way
			wrong := p.fabric.Control(0)
			if !k.goesByData() {
				p.write(p.lane(0, kindMessage), in[10_000:])
				wrong = p.fabric.Data(0)
			}
			p.write(wrong, frameOf(k, Call{Group: worldID, Seq: 2}, ""))
			err := within(t, func() error {
				return errors.Join(w.groups[0].Wait(t.Context(), &op), receive(t.Context(), w.groups[0], 1, 2, in))
			})
			clear(in)
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
			wantText(t, err, "on the link for others")
		})
	}
}

func TestPeerThatNeverPausesHoldsUpNobody(t *testing.T) {
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			nobodys := make([]byte, 1<<20) // part of a payload that is dropped
			p := w.puppets[2]
			p.send(0, header{kind: kindMessage, call: Call{Group: 90, Seq: 1}}, nil, maxPayload)
			for l := p.lane(0, kindMessage); ; {
				select {
				case <-stop:
					return
				default:
				}
				if n, err := l.Write(nobodys, nil); err != nil {
					return
				} else if n == 0 {
					runtime.Gosched()
				}
			}
		}()
		defer func() { close(stop); <-stopped }()
		w.join(0, 90, all(3)).Close()
		for i := range uint64(20) {
			if err := within(t, func() error {
				return errors.Join(send(t.Context(), w.groups[1], 0, i, nil), receive(t.Context(), w.groups[0], 1, i, nil))
			}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := within(t, func() error { return receive(ctx, w.groups[0], 1, 99, nil) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}, overTCP, overBoth)
}

// Endless questions get some answers, and use a bounded amount of memory.
func TestEndlessQuestionsCostNoMemory(t *testing.T) {
	w := newWorld(t, overTCP, 2, nil, 1)
	e := w.engines[0]
	many := bytes.Repeat(frameOf(kindQuery, Call{Group: worldID}, ""), 10_000)
	for full := 0; full < 2; { // until the link takes no more answers, twice
		w.puppets[1].write(w.puppets[1].fabric.Control(0), many)
		e.mu.Lock()
		for e.look() {
		}
		n := e.peer(1).control.out.count(kindStatus)
		e.mu.Unlock()
		if n > maxQueuedAnswers {
			t.Fatalf("%d answers wait to be written", n)
		}
		if n == maxQueuedAnswers {
			full++
		}
	}
}

// FuzzPeer sends arbitrary bytes to an engine on either link, in pieces, while the engine waits. The engine must not panic or hang, and
// must not hold more memory than its limit.
func FuzzPeer(f *testing.F) {
	call := Call{Group: worldID, Seq: 1}
	abort := string((&AbortError{By: 1, Rank: 1, Reason: ErrLost, Text: "x"}).encode())
	for _, frames := range [][]byte{
		frameOf(kindMessage, call, "12345678"),
		frameOf(kindCollective, call, "1234"),
		append(frameOf(kindMessage, Call{Group: 2, Seq: 1}, "early"), frameOf(kindMessage, call, "12345678")...),
		frameOf(kindAbort, call, abort),
		append(frameOf(kindQuery, call, ""), frameOf(kindLeave, call, "")...),
		frameOf(kindStatus, call, string((&groupStatus{known: true}).encode())),
		frameOf(kindBye, Call{}, ""),
		append(frameOf(kindLeave, Call{}, ""), "dM"...),
	} {
		f.Add(frames, []byte(nil), uint16(5))
		f.Add([]byte(nil), frames, uint16(5))
	}
	var long [headerSize]byte
	h := header{kind: kindMessage, call: Call{Group: 2}, length: 64<<20 + 1}
	h.encode(&long)
	f.Add(long[:], []byte(nil), uint16(6))
	f.Fuzz(func(t *testing.T, data, control []byte, piece uint16) {
		w := newWorld(t, inProcess, 2, impatient, 1) // the death of the puppet is not seen behind a message that is too long to be kept
		var m, c, wild Op
		in := make([]byte, 24)
		g := w.groups[0]
		if err := begin(g, Call{Seq: 1}); err != nil {
			t.Fatal(err)
		}
		g.RecvMessage(&m, 1, tag(1), in[:8])
		g.Recv(&c, 1, in[8:16])
		g.RecvMessage(&wild, Any, tag(2), in[16:])
		for len(data)+len(control) > 0 {
			data = pass(data, w.puppets[1].fabric.Data(0), int(piece)+1)
			control = pass(control, w.puppets[1].fabric.Control(0), int(piece)+1)
			if piece%2 == 0 {
				g.Poll(&m)
			}
		}
		w.puppets[1].die()
		if err := within(t, func() error { return g.Wait(t.Context(), &m) }); err == nil && m.size > 8 {
			t.Errorf("received %d bytes into 8", m.size)
		}
		testkit.Within(t, testkit.Patience, func() {
			g.Wait(t.Context(), &c)
			g.Wait(t.Context(), &wild)
		})
		clear(in)
		e := w.engines[0]
		e.mu.Lock()
		defer e.mu.Unlock()
		// The payload of a message gets its memory as soon as its header has arrived. A peer can make this rank hold that much.
		if e.earlyBytes > maxEarly+smallest {
			t.Errorf("%d bytes are held", e.earlyBytes)
		}
	})
}

// pass writes up to n bytes of buf, and returns the rest. The write fails after the engine has given up the peer.
func pass(buf []byte, link transport.Link, n int) []byte {
	n = min(n, len(buf))
	link.Write(buf[:n], nil)
	return buf[n:]
}
