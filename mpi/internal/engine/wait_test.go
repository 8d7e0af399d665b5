package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// overShared runs tests of conditions, which are about memory that ranks share. TCP alone has no such memory.
func overShared(t *testing.T, f func(t *testing.T, k kind)) { overSome(t, f, inProcess, overBoth) }

func TestAwaitEndsWhenItsConditionHolds(t *testing.T) {
	overShared(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 3, nil)
		var here [3]atomic.Bool
		w.each(func(rank int, g *Group) error {
			if rank == 0 { // rank 0 is the last one
				eventuallyAsleep(t, w.engines[1], 1)
				eventuallyAsleep(t, w.engines[2], 1)
			}
			here[rank].Store(true)
			g.Notify()
			return g.Await(t.Context(), func() bool { return here[0].Load() && here[1].Load() && here[2].Load() })
		})
	})
}

func TestAwaitEndsWithItsGroup(t *testing.T) {
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
				if err := within(t, func() error { return w.groups[0].Await(t.Context(), func() bool { return false }) }); !errors.Is(err,
					tt.want) {
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
		wantPeer(t, err, 2, ErrTimeout, "rank 2: no progress for 100ms: it has not made a call yet")
	}, overBoth)
}

// A rank that leaves may or may not be the one whose part is missing, so the others wait a while longer, and then give up.
func TestOthersWaitAWhileForALeaver(t *testing.T) {
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
			if err := send(t.Context(), w.groups[2], 0, 9, nil); err != nil { // a Network makes links only when they are used
				t.Fatal(err)
			}
			if first == "waits_first" {
				done = wait()
			}
			start := time.Now()
			w.engines[2].Close() // the goodbye does not say which call was its last
			testkit.Eventually(t, "the goodbye is heard", func() bool { return hasLeft(w.groups[0], 2) })
			if first == "leaves_first" {
				start = time.Now()
				done = wait()
			}
			wantPeer(t, within(t, func() error { return <-done }), 2, ErrLeft)
			if took := time.Since(start); took < departureWait*9/10 {
				t.Errorf("it gave up after %v, before %v", took, departureWait)
			}
		})
	}
}

func TestPatienceWithALeaverIsRewarded(t *testing.T) {
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

// Watch gives up only when its context ends, and the group goes on.
func TestWatchEndsWithItsContextAlone(t *testing.T) {
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

// A condition may be about ops that other goroutines complete without waiting themselves.
func TestWatchSeesOpsOfOtherGoroutines(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		w.puppets[1].frame(0, kindMessage, Call{Group: worldID, Seq: 1}, []byte("x"))
		eventuallyEarly(t, w.engines[0], 1)
		var op Op
		done := make(chan error, 1)
		go func() { done <- w.groups[0].Watch(t.Context(), op.Done) }()
		eventuallyAsleep(t, w.engines[0], 1)
		w.groups[0].RecvMessage(&op, 1, tag(1), make([]byte, 1)) // the op is done at once
		if err := within(t, func() error { return <-done }); err != nil {
			t.Error(err)
		}
	})
}

// pause waits for d. It is for tests that test time itself.
func pause(d time.Duration) { <-time.After(d) }

// The end of a context ends a wait at once, with its cause, whatever the wait is for and however far it has come. The caller may use the
// buffer again, and the other rank learns the reason.
func TestCancelEndsAnyWaitAtOnce(t *testing.T) {
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
					w.engines[0].policy.Spin = 2 * testkit.Patience
					go func() { done <- receive(ctx, w.groups[0], 1, 1, buf) }()
					pause(5 * time.Millisecond) // it is spinning by now, or has seen at once that the context has ended
				case "sending":
					go func() { done <- send(ctx, w.groups[0], 1, 1, buf) }()
					stop(w.engines[1]) // the engine would take everything
					defer w.engines[1].mu.Unlock()
					eventuallyAsleep(t, w.engines[0], 1)
				default:
					go func() { done <- receive(ctx, w.groups[0], 1, 1, buf) }()
					eventuallyAsleep(t, w.engines[0], 1)
				}
				if when == "in_the_payload" {
					w.puppets[1].send(0, header{kind: kindMessage, call: Call{Group: worldID, Seq: 1}},
						make([]byte, 100_000), uint64(len(buf)))
					testkit.Eventually(t, "a part has come", func() bool {
						w.engines[0].mu.Lock()
						defer w.engines[0].mu.Unlock()
						return w.engines[0].peer(1).data.in.got == 100_000
					})
				}
				var err error
				testkit.Within(t, testkit.Patience, func() { // without the cancellation it would spin for longer
					cancel(why)
					err = <-done
				})
				for i := range buf[:1<<20] { // the race detector would report an access by the engine
					buf[i] = 1
				}
				if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
					t.Errorf("got %v, want the context's error and its cause", err)
				}
				wantText(t, err, "canceled while waiting for rank 1: context canceled: the user said so")
				if when == "in_the_payload" { // the rest of the payload is dropped, and what follows it is received
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
				wantAbort(t, err, 0, 0, ErrAborted,
					"rank 0 gave up: call #0 a: canceled while waiting for rank 1: context canceled: the user said so")
			})
		})
	}
}

// stop makes an engine do nothing until its mu is unlocked.
func stop(e *Engine) { e.mu.Lock() }

func TestDeadlineIsNotTheEnginesTimeout(t *testing.T) {
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

// A message that has arrived takes precedence over a context that has ended.
func TestArrivedMessageBeatsAnEndedContext(t *testing.T) {
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

func TestFirstFailureIsThatOfLaterCalls(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		g := w.groups[0]
		why := errors.New("bad arguments")
		if err := errors.Join(begin(g, Call{Seq: 1}), begin(w.groups[1], Call{Seq: 1})); err != nil {
			t.Fatal(err)
		}
		g.Fail(why)
		g.Fail(errors.New("another"))
		if err := g.Err(); err != why {
			t.Errorf("after a second failure it is %v", err)
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
