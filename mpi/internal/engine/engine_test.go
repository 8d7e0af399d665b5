package engine

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// Close ends all waits at once, and leaves no descriptor open and no goroutine running (TestMain checks for goroutines).
func TestCloseLeavesNothing(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		if r, w, err := os.Pipe(); err == nil { // the runtime opens files of its own for the first pipe
			r.Close()
			w.Close()
		}
		before := openFiles(t)
		fabrics, _ := join(t, k, 3)
		engines := make([]*Engine, len(fabrics))
		for rank, f := range fabrics {
			engines[rank] = New(f, Options{Timeout: testkit.Patience, Describe: describeCall, DescribeFully: detail})
		}
		var tasks []chan error
		for rank, e := range engines {
			g, err := e.Group(worldID, all(3))
			if err != nil {
				t.Fatal(err)
			}
			for i, wait := range []func() error{
				func() error { return receive(t.Context(), g, (rank+1)%3, 1, make([]byte, 10)) },
				func() error { return receive(t.Context(), g, Any, 2, nil) },
				func() error { return g.Await(t.Context(), func() bool { return false }) },
				func() error { return send(t.Context(), g, (rank+1)%3, 3, make([]byte, 4<<20)) },
			} {
				done := make(chan error, 1)
				if i < 3 {
					tasks = append(tasks, done)
				}
				go func() { done <- wait() }()
			}
		}
		for _, e := range engines {
			eventuallyAsleep(t, e, 3) // the sends have ended by then
		}
		start := time.Now()
		for rank, err := range testkit.Each(3, func(rank int) error { return engines[rank].Close() }) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if took := time.Since(start); took > closeLimit+testkit.Patience {
			t.Errorf("closing took %v", took)
		}
		for _, done := range tasks {
			if err := within(t, func() error { return <-done }); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrLeft) {
				t.Errorf("a wait got %v", err)
			}
		}
		for _, e := range engines {
			if err := e.Close(); err != nil {
				t.Errorf("closing again: %v", err)
			}
			if _, err := e.Group(9, all(3)); !errors.Is(err, ErrClosed) {
				t.Errorf("a new group got %v", err)
			}
		}
		if after := openFiles(t); after > before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}

func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// A rank that has left with a goodbye is not reported as lost to a rank that contacts it for the first time.
func TestSendToOneThatHasLeft(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		if err := w.engines[1].Close(); err != nil {
			t.Fatal(err)
		}
		err := within(t, func() error {
			return errors.Join(send(t.Context(), w.groups[0], 1, 1, make([]byte, 10)), receive(t.Context(), w.groups[0], 1, 1, nil))
		})
		if !errors.Is(err, ErrLeft) || errors.Is(err, ErrLost) {
			t.Errorf("got %v, want ErrLeft", err)
		}
	})
}

// If an engine is closed while other goroutines use it in every way, they must not touch what is closed: access to memory that is no longer
// mapped would end the process.
func TestCloseIsSafeWhileInUse(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		for range 2 {
			w := newWorld(t, k, 2, nil)
			w.each(func(rank int, g *Group) error { return send(t.Context(), g, 1-rank, 7, nil) }) // a Network links on demand
			var stopped atomic.Bool
			uses := []func(rank int, g *Group) error{
				func(_ int, g *Group) error { g.Notify(); return nil },
				func(rank int, g *Group) error { return send(t.Context(), g, 1-rank, 1, make([]byte, 100)) },
				func(rank int, g *Group) error { return receive(t.Context(), g, 1-rank, 1, make([]byte, 100)) },
				func(_ int, g *Group) error { return g.Await(t.Context(), stopped.Load) },
				func(rank int, g *Group) error {
					var op Op
					g.RecvMessage(&op, 1-rank, tag(5), nil)
					for !op.Done() && !stopped.Load() {
						g.Poll(&op)
					}
					return ErrClosed
				},
			}
			users := make(chan error, 1)
			go func() {
				users <- errors.Join(testkit.Each(2*len(uses), func(i int) error {
					for !stopped.Load() {
						err := uses[i/2](i%2, w.groups[i%2])
						reset := k == overTCP && errors.Is(err, ErrLost) // closing with data unread, tcp(7)
						if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrLeft) && !reset {
							return fmt.Errorf("use %d: %w", i/2, err)
						}
					}
					return nil
				})...)
			}()
			pause(2 * time.Millisecond) // the goroutines are at work
			errs := testkit.Each(2, func(rank int) error { return w.engines[rank].Close() })
			pause(time.Millisecond)
			stopped.Store(true)
			if err := errors.Join(append(errs, within(t, func() error { return <-users }))...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Data that was sent before the engine is closed is delivered if the receiver reads it.
func TestCloseDeliversWhatWasSent(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil)
		const n = 10 << 20
		var r, s Op
		in := make([]byte, n)
		w.groups[1].RecvMessage(&r, 0, tag(1), in)
		done := make(chan error, 1)
		go func() { done <- w.groups[1].Wait(t.Context(), &r) }()
		eventuallyAsleep(t, w.engines[1], 1)
		w.groups[0].SendMessage(&s, 1, tag(1), make([]byte, n))
		if err := w.groups[0].Wait(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		w.engines[0].Close()
		if err := within(t, func() error { return <-done }); err != nil {
			t.Error(err)
		}
	})
}

// A peer that does not read cannot delay Close for long.
func TestCloseDoesNotWaitForTheDeaf(t *testing.T) {
	t.Parallel()
	overSome(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		payload := make([]byte, 16<<20)
		var s Op
		w.groups[0].SendMessage(&s, 1, tag(1), payload)
		testkit.Within(t, closeLimit+testkit.Patience, func() { w.engines[0].Close() })
		if !s.Done() {
			t.Error("the send is not over")
		}
		clear(payload) // the caller owns it again
	}, overBoth)
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	w := newWorld(t, inProcess, 2, nil)
	g := w.groups[0]
	g.Close()
	g.Close()
	g.Retire()
	again := w.join(0, 70, all(2))
	w.engines[0].Close()
	again.Close()
	again.Retire()
	again.Notify()
	if err := again.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// If the ops are pursued, a payload is transferred although neither rank waits for it.
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
