package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// pause waits for d: for tests in which time itself is what is tested.
func pause(d time.Duration) { <-time.After(d) }

// The end of a context ends a wait at once and tells its cause, whatever the wait is for and however far it has come. The
// buffer is the caller's again, and the other rank learns why.
func TestCancel(t *testing.T) {
	for _, when := range []string{"before", "while_spinning", "asleep", "in_the_payload", "sending"} {
		t.Run(when, func(t *testing.T) {
			overAll(t, func(t *testing.T, k kind) {
				if when == "sending" && k == inProcess {
					t.Skip("a Network takes everything at once")
				}
				var puppets []int
				if when == "in_the_payload" {
					puppets = []int{1}
				}
				w := newWorld(t, k, 2, nil, puppets...)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				why := errors.New("the user said so")
				buf := make([]byte, 16<<20)
				done := make(chan error, 1)
				switch when {
				case "before":
					cancel(why)
					done <- receive(ctx, w.groups[0], 1, 1, buf)
				case "while_spinning":
					w.engines[0].manner.Spin = 2 * testkit.Patience
					go func() { done <- receive(ctx, w.groups[0], 1, 1, buf) }()
					pause(5 * time.Millisecond) // it spins by now, or sees the context ended at once
				case "sending":
					go func() { done <- send(ctx, w.groups[0], 1, 1, buf) }()
					stop(w.engines[1]) // it would take all
					defer w.engines[1].mu.Unlock()
					eventuallyAsleep(t, w.engines[0], 1)
				default:
					go func() { done <- receive(ctx, w.groups[0], 1, 1, buf) }()
					eventuallyAsleep(t, w.engines[0], 1)
				}
				if when == "in_the_payload" {
					w.puppets[1].say(0, header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}}, make([]byte, 100_000), uint64(len(buf)))
					testkit.Eventually(t, "a part has come", func() bool {
						w.engines[0].mu.Lock()
						defer w.engines[0].mu.Unlock()
						return w.engines[0].peer(1).data.in.got == 100_000
					})
				}
				var err error
				testkit.Within(t, testkit.Patience, func() { // it would spin for longer
					cancel(why)
					err = <-done
				})
				for i := range buf[:1<<20] { // the race detector would see the engine in it
					buf[i] = 1
				}
				if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
					t.Errorf("got %v, want the context's error and its cause", err)
				}
				wantText(t, err, "waited for rank 1 until context canceled: the user said so")
				if when == "in_the_payload" { // the rest of it is nobody's, and what follows is received
					other, p := w.join(0, 90, all(2)), w.puppets[1]
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						p.write(p.lane(0, kindMessage), make([]byte, len(buf)-100_000))
						p.frame(0, kindMessage, Call{Group: 90, Seq: 1}, []byte("next"))
					}()
					if err := within(t, func() error { return receive(t.Context(), other, 1, 1, make([]byte, 4)) }); err != nil {
						t.Error(err)
					}
					<-sent
					if buf[150_000] != 1 {
						t.Error("the buffer was written to after the failure")
					}
				}
				if when == "sending" || when == "in_the_payload" {
					return
				}
				err = within(t, func() error { return receive(t.Context(), w.groups[1], 0, 2, nil) })
				wantAbort(t, err, 0, 0, ErrAborted, "rank 0 gave up: call #0 a: waited for rank 1 until context canceled: the user said so")
			})
		})
	}
}

// stop makes an engine do nothing until its mu is unlocked.
func stop(e *Engine) { e.mu.Lock() }

// A deadline is told from the engine's own time-out.
func TestDeadline(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err := within(t, func() error { return receive(ctx, w.groups[0], 1, 1, nil) })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
			t.Errorf("got %v", err)
		}
	})
}

// What has come is worth more than a context that has ended.
func TestCancelledButThere(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := send(ctx, w.groups[0], 1, 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		eventuallyEarly(t, w.engines[1], 1)
		if err := receive(ctx, w.groups[1], 0, 1, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

// The first failure is the one that all later calls get.
func TestFirstFailureStays(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		g := w.groups[0]
		why := errors.New("bad arguments")
		if err := errors.Join(begin(g, Call{Seq: 1}), begin(w.groups[1], Call{Seq: 1})); err != nil {
			t.Fatal(err)
		}
		if err := g.Fail(why); err != why {
			t.Errorf("Fail returned %v", err)
		}
		if err := g.Fail(errors.New("another")); err != why {
			t.Errorf("the second failure returned %v", err)
		}
		var ops [4]Op
		g.Send(&ops[0], 1, nil)
		g.Recv(&ops[1], 1, nil)
		g.SendMessage(&ops[2], 1, tag(1), nil)
		g.RecvMessage(&ops[3], Any, tag(1), nil)
		for i := range ops {
			if err := g.Wait(t.Context(), &ops[i]); err != why || !ops[i].Done() {
				t.Errorf("op %d got %v", i, err)
			}
		}
		if err := begin(g, Call{Seq: 2}); err != why {
			t.Errorf("Begin got %v", err)
		}
		err := within(t, func() error { return exchange(t.Context(), w.groups[1], 0, nil, nil) })
		wantAbort(t, err, 0, 0, ErrAborted, "rank 0 gave up: bad arguments")
	})
}
