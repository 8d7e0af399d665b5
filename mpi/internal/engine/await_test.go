package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// Conditions are about memory that ranks share: over TCP alone there is none.
func overShared(t *testing.T, f func(t *testing.T, k kind)) { overSome(t, f, inProcess, overBoth) }

func TestAwait(t *testing.T) {
	overShared(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		var here [3]atomic.Bool
		w.each(func(rank int, g *Group) error {
			if rank == 0 { // the last one
				eventuallyAsleep(t, w.engines[1], 1)
				eventuallyAsleep(t, w.engines[2], 1)
			}
			here[rank].Store(true)
			g.Notify()
			return g.Await(t.Context(), func() bool { return here[0].Load() && here[1].Load() && here[2].Load() })
		})
	})
}

// A wait for a condition ends with its group.
func TestAwaitEnds(t *testing.T) {
	why := errors.New("on purpose")
	tests := []struct {
		name string
		do   func(w *world, cancel context.CancelCauseFunc)
		want error
	}{
		{"failure", func(w *world, _ context.CancelCauseFunc) { w.groups[0].Fail(why) }, why},
		{"elsewhere", func(w *world, _ context.CancelCauseFunc) { w.groups[1].Fail(why) }, ErrAborted},
		{"death", func(w *world, _ context.CancelCauseFunc) { w.puppets[2].die() }, ErrLost},
		{"cancel", func(w *world, cancel context.CancelCauseFunc) { cancel(why) }, why},
		{"close", func(w *world, _ context.CancelCauseFunc) { w.groups[0].Close() }, ErrClosed},
		{"close_all", func(w *world, _ context.CancelCauseFunc) { w.engines[0].Close() }, ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			overShared(t, func(t *testing.T, k kind) {
				w := newWorld(t, k, 3, nil, 2)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error, 1)
				go func() { done <- w.groups[0].Await(ctx, func() bool { return false }) }()
				eventuallyAsleep(t, w.engines[0], 1)
				tt.do(w, cancel)
				if err := within(t, func() error { return <-done }); !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if err := w.groups[0].Await(t.Context(), func() bool { return true }); err != nil {
					t.Errorf("a condition that is true got %v", err)
				}
				if err := within(t, func() error { return w.groups[0].Await(t.Context(), func() bool { return false }) }); !errors.Is(err, tt.want) {
					t.Errorf("the next wait got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

func TestAwaitTimesOut(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, impatient)
		w.awaitAnswers(testkit.Patience)
		if err := errors.Join(begin(w.groups[0], Call{Seq: 1}), begin(w.groups[1], Call{Seq: 1})); err != nil {
			t.Fatal(err)
		}
		err := within(t, func() error { return w.groups[0].Await(t.Context(), func() bool { return false }) })
		wantPeer(t, err, 2, ErrTimeout, "rank 2: no progress for 100ms: it has called nothing yet")
	}, overBoth)
}

// A rank that leaves may be the one whose part is missing, or not: the others wait on for a while, and no longer.
func TestPatience(t *testing.T) {
	t.Parallel()
	for first, k := range map[string]kind{"leaves_first": inProcess, "waits_first": overBoth} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, k, 3, nil)
			wait := func() chan error {
				done := make(chan error, 1)
				go func() { done <- w.groups[0].Await(t.Context(), func() bool { return false }) }()
				eventuallyAsleep(t, w.engines[0], 1)
				return done
			}
			var done chan error
			if err := send(t.Context(), w.groups[2], 0, 9, nil); err != nil { // a Network links whom it must
				t.Fatal(err)
			}
			if first == "waits_first" {
				done = wait()
			}
			start := time.Now()
			w.engines[2].Close() // it does not say which call was its last
			testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[0], 2) })
			if first == "leaves_first" {
				start = time.Now()
				done = wait()
			}
			wantPeer(t, within(t, func() error { return <-done }), 2, ErrLeft)
			if took := time.Since(start); took < patience*9/10 {
				t.Errorf("it gave up after %v, before %v", took, patience)
			}
		})
	}
}

func TestPatienceIsRewarded(t *testing.T) {
	overShared(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		var ready atomic.Bool
		done := make(chan error, 1)
		go func() { done <- w.groups[0].Await(t.Context(), ready.Load) }()
		eventuallyAsleep(t, w.engines[0], 1)
		if err := send(t.Context(), w.groups[2], 0, 9, nil); err != nil {
			t.Fatal(err)
		}
		w.groups[2].Close()
		testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[0], 2) })
		ready.Store(true)
		w.groups[1].Notify()
		if err := within(t, func() error { return <-done }); err != nil {
			t.Error(err)
		}
	})
}

// Watch gives up with its context, and only then; the group goes on.
func TestWatch(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, impatient)
		ctx, cancel := context.WithTimeout(t.Context(), 3*shortly)
		defer cancel()
		start := time.Now()
		err := within(t, func() error { return w.groups[0].Watch(ctx, func() bool { return false }) })
		if err != context.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took < 3*shortly {
			t.Errorf("it gave up after %v", took)
		}
		var ready atomic.Bool
		done := make(chan error, 1)
		go func() { done <- w.groups[0].Watch(t.Context(), ready.Load) }()
		eventuallyAsleep(t, w.engines[0], 1)
		ready.Store(true)
		w.groups[1].Notify()
		if err := within(t, func() error { return <-done }); err != nil {
			t.Errorf("with the condition true: %v", err)
		}
		if err := w.groups[0].Err(); err != nil {
			t.Errorf("the group has failed: %v", err)
		}
	}, overBoth)
}

// A condition may be about ops that other goroutines complete, without waiting for anything themselves.
func TestWatchOps(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		w.puppets[1].frame(0, kindMessage, Call{Group: worldID, Seq: 1}, []byte("x"))
		eventuallyEarly(t, w.engines[0], 1)
		var op Op
		done := make(chan error, 1)
		go func() { done <- w.groups[0].Watch(t.Context(), op.Done) }()
		eventuallyAsleep(t, w.engines[0], 1)
		w.groups[0].RecvMessage(&op, 1, tag(1), make([]byte, 1)) // it is done at once
		if err := within(t, func() error { return <-done }); err != nil {
			t.Error(err)
		}
	})
}
