package engine

import (
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// stuff makes rank 1 send rank 0 more than it keeps, and returns when nothing more of that moves.
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

// A rank that sends what nobody receives, and fails, is heard at once: its words do not wait behind the payload.
func TestFailureOvertakes(t *testing.T) {
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

// The same of its end.
func TestDeathOvertakes(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil, 2)
		w.holdLittle(0)
		p := w.puppets[2]
		message := Call{Group: worldID, Seq: 1}
		p.frame(0, kindMessage, message, make([]byte, little-8000))
		eventuallyEarly(t, w.engines[0], 1)
		p.say(0, header{kind: kindMessage, call: message}, make([]byte, 10_000), 32<<20)
		eventuallyStalled(t, w.engines[0], 2)
		waiting := make(chan error, 1)
		go func() { waiting <- receive(t.Context(), w.groups[0], 1, 9, make([]byte, 8)) }()
		eventuallyAsleep(t, w.engines[0], 1)
		p.die()
		wantPeer(t, within(t, func() error { return <-waiting }), 2, ErrLost)
	})
}

// A rank whose payload nobody takes answers when it is asked what it does: it is not said to be stopped.
func TestStatusOvertakes(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, func(rank int, o *Options) {
			if rank == 0 {
				o.Timeout = shortly
			}
		})
		w.awaitAnswers(testkit.Patience)
		sent := stuff(t, w)
		err := within(t, func() error { return receive(t.Context(), w.groups[0], 1, 9, make([]byte, 8)) })
		wantPeer(t, err, 1, ErrTimeout, "it has called nothing yet")
		<-sent
	})
}

// Who breaks the rules, on either link, is told so.
func TestViolatorIsTold(t *testing.T) {
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
				h, payload := p.hearFrame(0, kindAbort)
				told, err := decodeAbort(payload, 2)
				if h.kind != kindAbort || err != nil || told.Rank != 1 || !errors.Is(told, ErrProtocol) {
					t.Errorf("it was told %+v, %v", told, err)
				}
			})
		})
	}
}

// A payload that arrives while its receiver waits for nobody goes on all the same, if that wants it to.
func TestPursue(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		var s, r Op
		payload, in := pattern(1, 64<<20), make([]byte, 64<<20)
		w.groups[0].SendMessage(&s, 1, tag(1), payload)
		w.groups[0].Pursue(&s)
		w.groups[1].RecvMessage(&r, 0, tag(1), in)
		w.groups[1].Pursue(&r)
		testkit.Eventually(t, "both are done", func() bool { return s.Done() && r.Done() })
		if s.err != nil || r.err != nil || string(in) != string(payload) {
			t.Errorf("%v, %v, or something else came", s.err, r.err)
		}
		w.each(func(rank int, g *Group) error {
			g.e.mu.Lock()
			defer g.e.mu.Unlock()
			if g.e.pursued != 0 {
				t.Errorf("rank %d pursues %d ops that are done", rank, g.e.pursued)
			}
			return nil
		})
	})
}
