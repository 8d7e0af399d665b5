package mpi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// leftEarly are calls from which rank 0 of two returns before the other rank has come.
var leftEarly = []call{
	{"broadcast", func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, make([]float32, 32), 0) }},
	{"broadcast_request", func(ctx context.Context, c *Comm) error { return IBroadcast(ctx, c, make([]float32, 32), 0).Wait(ctx) }},
	{"reduce", func(ctx context.Context, c *Comm) error { return Reduce(ctx, c, make([]float32, 32), 1, Sum) }},
	{"gather", func(ctx context.Context, c *Comm) error {
		return Gather(ctx, c, make([]float32, 64), make([]float32, 32), 1)
	}},
	{"scatter", func(ctx context.Context, c *Comm) error {
		return Scatter(ctx, c, make([]float32, 32), make([]float32, 64), 0)
	}},
	{"scan", func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]float32, 32), Sum) }},
	{"gather_v", func(ctx context.Context, c *Comm) error {
		return GatherV(ctx, c, make([]float32, 64), make([]float32, 32), []int{32, 32}, 1)
	}},
	{"scatter_v", func(ctx context.Context, c *Comm) error {
		return ScatterV(ctx, c, make([]float32, 32), make([]float32, 64), []int{32, 32}, 0)
	}},
}

// A rank that does not need the others returns from one call alone. Its next call, or Close, waits until the other rank has made the first
// call.
func TestRankIsAheadByOneCall(t *testing.T) {
	next := map[string]func(ctx context.Context, c *Comm, tt call) error{
		"itself": func(ctx context.Context, c *Comm, tt call) error { return tt.do(ctx, c) },
		"exscan": func(ctx context.Context, c *Comm, _ call) error { // uses messages on every transport
			return Exscan(ctx, c, make([]float32, 32), Sum)
		},
		"barrier": func(ctx context.Context, c *Comm, _ call) error { return c.Barrier(ctx) },
		"close":   func(_ context.Context, c *Comm, _ call) error { return c.Close() },
	}
	for _, over := range transports {
		for _, tt := range leftEarly {
			for name, after := range next {
				t.Run(over+"/"+tt.name+"/"+name, func(t *testing.T) {
					w := newWorldOn(t, over, 2, nil)
					testkit.Within(t, testkit.Patience, func() {
						if err := tt.do(t.Context(), w[0]); err != nil {
							t.Error(err)
						}
					})
					done := make(chan error, 1)
					go func() { done <- after(t.Context(), w[0], tt) }()
					testkit.Eventually(t, "rank 0 waits", func() bool { return len(done) > 0 || w[0].isRunning() })
					if len(done) > 0 {
						t.Errorf("rank 0 is ahead by two calls: %v", <-done)
						return
					}
					errs := []error{tt.do(t.Context(), w[1])}
					if name != "close" {
						errs = append(errs, after(t.Context(), w[1], tt))
					}
					if err := errors.Join(append(errs, <-done)...); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// If the other rank does not come, the error of the call or of Close names it, and the call that it has not entered.
func TestCloseNamesMissingRanks(t *testing.T) {
	for _, over := range transports {
		for _, tt := range leftEarly {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				t.Parallel() // it mostly waits
				promptly(t, func() time.Duration {
					w, timeout := newImpatient(t, over, 2, 300*time.Millisecond)
					entered := testkit.Each(2, func(rank int) error { return w[rank].Barrier(t.Context()) })
					if err := errors.Join(entered...); errors.Is(err, ErrTimeout) {
						return again // a rank did not get the processor for so long
					} else if err != nil {
						t.Error(err)
					}
					begin := time.Now()
					err := errors.Join(tt.do(t.Context(), w[0]), w[0].Close())
					took := time.Since(begin) - timeout
					if starved(err) {
						return again
					}
					kind, _, _ := strings.Cut(tt.name, "_")
					for _, want := range []string{kind + " #2", "rank 1: no progress", "it has not entered " + kind + " #2"} {
						if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), want) {
							t.Errorf("got %v, want %q", err, want)
						}
					}
					lines, e := flightOf(w[0])
					if e != nil || len(lines) == 0 {
						t.Fatal(lines, e)
					}
					if last := lines[len(lines)-1]; last.State != "failed" || !strings.HasPrefix(last.Call, kind+" #2") {
						t.Errorf("the recorder's last is %+v", last)
					}
					return took
				})
			})
		}
	}
}

// If the other rank has closed its Comm, the error says that it has left.
func TestCloseFindsThatTheOtherHasLeft(t *testing.T) {
	for _, over := range transports {
		for _, tt := range leftEarly {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				promptly(t, func() time.Duration {
					w := newWorldOn(t, over, 2, nil)
					must(t, testkit.Each(2, func(rank int) error { return w[rank].Barrier(t.Context()) }))
					must(t, []error{w[1].Close()})
					begin := time.Now()
					if err := errors.Join(tt.do(t.Context(), w[0]), w[0].Close()); !errors.Is(err, ErrLeft) {
						t.Errorf("got %v", err)
					}
					return time.Since(begin)
				})
			})
		}
	}
}

// A call that does not need the other ranks returns an error if the group has already failed.
func TestEarlyCallOfAFailedGroupFails(t *testing.T) {
	for _, over := range transports {
		for _, tt := range leftEarly {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				t.Parallel() // it mostly waits
				w := newWorldOn(t, over, 2, nil)
				must(t, testkit.Each(2, func(rank int) error { return w[rank].Barrier(t.Context()) }))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				if err := w[1].Barrier(ctx); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				testkit.Eventually(t, "rank 0 hears of it", func() bool { return w[0].core.group.Err() != nil })
				if err := tt.do(t.Context(), w[0]); !errors.Is(err, ErrAborted) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}
