package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// isRunning reports whether the rank is in a collective.
func (c *Comm) isRunning() bool {
	return c.core.turns.taken.Load()
}

// call is one collective, or an exchange of messages that involves all ranks. It is large enough to be caught in the middle.
type call struct {
	name string
	do   func(ctx context.Context, c *Comm) error
}

const callLength = 1 << 15 // elements of a block

// everyCall lists what ranks can do together.
var everyCall = []call{
	{"all_reduce", func(ctx context.Context, c *Comm) error {
		return AllReduce(ctx, c, make([]float32, 8*callLength), Sum)
	}},
	{"reduce", func(ctx context.Context, c *Comm) error {
		return Reduce(ctx, c, make([]float32, 8*callLength), c.Size()-1, Sum)
	}},
	{"reduce_scatter", func(ctx context.Context, c *Comm) error {
		return ReduceScatter(ctx, c, make([]float32, callLength), make([]float32, c.Size()*callLength), Sum)
	}},
	{"scan", func(ctx context.Context, c *Comm) error { return Scan(ctx, c, make([]float32, 8*callLength), Sum) }},
	{"exscan", func(ctx context.Context, c *Comm) error { return Exscan(ctx, c, make([]float32, 8*callLength), Sum) }},
	{"broadcast", func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, make([]float32, 8*callLength), 0) }},
	{"all_gather", func(ctx context.Context, c *Comm) error {
		return AllGather(ctx, c, make([]float32, c.Size()*callLength), make([]float32, callLength))
	}},
	{"gather", func(ctx context.Context, c *Comm) error {
		var out []float32
		if c.Rank() == 0 {
			out = make([]float32, c.Size()*callLength)
		}
		return Gather(ctx, c, out, make([]float32, callLength), 0)
	}},
	{"scatter", func(ctx context.Context, c *Comm) error {
		var in []float32
		if c.Rank() == 0 {
			in = make([]float32, c.Size()*callLength)
		}
		return Scatter(ctx, c, make([]float32, callLength), in, 0)
	}},
	{"all_to_all", func(ctx context.Context, c *Comm) error {
		return AllToAll(ctx, c, make([]float32, c.Size()*callLength), make([]float32, c.Size()*callLength))
	}},
	{"barrier", func(ctx context.Context, c *Comm) error { return c.Barrier(ctx) }},
	{"messages", func(ctx context.Context, c *Comm) error {
		next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		sent := ISend(c, make([]float32, callLength), next, 7)
		received := IRecv(c, make([]float32, callLength), last, 7)
		return WaitAll(ctx, sent, received)
	}},
}

// untilBroken makes calls until one fails.
func untilBroken(ctx context.Context, c *Comm, tt call) error {
	for {
		if err := tt.do(ctx, c); err != nil {
			return err
		}
	}
}

// A rank that makes one call more than the others, which have left, gets an error.
func TestCallAfterTheOthersLeftFails(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			promptly(t, func() time.Duration {
				w := newWorldOn(t, over, 3, nil)
				var s stopwatch
				errs := testkit.Each(3, func(rank int) error {
					if err := w[rank].Barrier(t.Context()); err != nil {
						return err
					}
					s.called()
					if rank > 0 {
						return w[rank].Close()
					}
					return w[0].Barrier(t.Context())
				})
				if !errors.Is(errs[0], ErrLeft) || !strings.Contains(errs[0].Error(), "barrier #2: rank ") ||
					!strings.Contains(errs[0].Error(), "it has left the group after call #1") {
					t.Errorf("got %v", errs[0])
				}
				must(t, errs[1:])
				return s.sinceLast()
			})
		})
	}
}

// If a rank does not come to a call of any kind, the errors of the others name it after the time-out, and say what it did last.
func TestAbsentRankIsNamedByEveryCall(t *testing.T) {
	const size, absent = 3, 1
	for _, over := range transports {
		for _, tt := range everyCall {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				t.Parallel() // it mostly waits
				promptly(t, func() time.Duration {
					w, timeout := newImpatient(t, over, size, 300*time.Millisecond)
					entered := testkit.Each(size, func(rank int) error { return w[rank].Barrier(t.Context()) })
					if err := errors.Join(entered...); errors.Is(err, ErrTimeout) {
						return again // all ranks are there, but one did not get the processor for so long
					} else if err != nil {
						t.Error(err)
					}
					begin := time.Now()
					errs := testkit.Each(size, func(rank int) error {
						if rank == absent {
							return nil
						}
						return untilBroken(t.Context(), w[rank], tt)
					})
					took := time.Since(begin) - timeout
					if took < 0 {
						t.Errorf("the time-out came %v too early", -took)
					}
					if starved(errs...) || tt.name != "messages" && late(errs, absent) {
						return again
					}
					want := fmt.Sprintf("rank %d: no progress for %v", absent, timeout)
					for rank, err := range errs {
						if tt.name == "messages" && rank != absent+1 && errors.Is(err, ErrTimeout) {
							continue // it waits for a rank that waits for the absent one, and may name that rank
						}
						if rank != absent &&
							(!errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), want) ||
								!strings.Contains(err.Error(), "barrier #1")) {
							t.Errorf("rank %d got %v, want %q", rank, err, want)
						}
					}
					return took
				})
			})
		}
	}
}

// late reports whether errs name a rank that did come. On a busy machine that rank may have come after the time-out.
func late(errs []error, absent int) bool {
	for rank := range errs {
		name := fmt.Sprintf("rank %d: no progress", rank)
		if rank != absent && slices.ContainsFunc(errs, func(err error) bool { return err != nil && strings.Contains(err.Error(), name) }) {
			return true
		}
	}
	return false
}

// A panic in a user's operation is an error of the call, whether the caller waits or not, and breaks the Comm. The other ranks get the
// error, the flight recorder's file shows it, and the Comm can be closed.
func TestPanicInOperation(t *testing.T) {
	boom := NewOp("boom", true, func(_, _, _ []int32) { panic("boom") })
	calls := map[string]func(ctx context.Context, c *Comm) error{
		"waited_for": func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []int32{1}, boom) },
		"by_itself":  func(ctx context.Context, c *Comm) error { return IAllReduce(ctx, c, []int32{1}, boom).Wait(ctx) },
		"queued": func(ctx context.Context, c *Comm) error {
			before := c.IBarrier(ctx)
			return errors.Join(AllReduce(ctx, c, []int32{1}, boom), before.Wait(ctx))
		},
	}
	for _, over := range transports {
		for name, call := range calls {
			t.Run(over+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				w := newWorldOn(t, over, 2, func(cfg *InitConfig) {
					cfg.Flight = filepath.Join(dir, "flight")
					if over != "local" {
						cfg.Flight += fmt.Sprintf(".%d", cfg.Rank)
					}
				})
				var errs []error
				testkit.Within(t, testkit.Patience, func() {
					errs = testkit.Each(2, func(rank int) error {
						defer w[rank].Close()
						return call(t.Context(), w[rank])
					})
				})
				panics := 0
				for rank, err := range errs {
					var p *PanicError
					if errors.As(err, &p) && p.Value == "boom" && strings.Contains(string(p.Stack), "TestPanicInOperation") {
						panics++
					}
					if err == nil || !strings.Contains(err.Error(), "boom") {
						t.Errorf("rank %d got %v", rank, err)
					}
					text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("flight.%d", rank)))
					if err != nil {
						t.Fatal(err)
					}
					lines, err := readFlight(text)
					if err != nil || len(lines) == 0 || lines[len(lines)-1].State != "failed" {
						t.Errorf("rank %d wrote %v, %q", rank, err, text)
					}
				}
				if panics == 0 {
					t.Errorf("nobody's operation has panicked: %v", errs)
				}
			})
		}
	}
}

// A user's operation that ends its goroutine, as t.FailNow does, breaks the Comm like one that panics, on all ranks. The Comm can be
// closed.
func TestGoexitInOperationBreaksTheComm(t *testing.T) {
	exit := NewOp("exit", true, func(_, _, _ []int32) { runtime.Goexit() })
	for _, over := range transports {
		for _, wait := range []bool{true, false} {
			w := newWorldOn(t, over, 2, nil)
			testkit.Within(t, testkit.Patience, func() {
				testkit.Each(2, func(rank int) error {
					defer func() {
						if w[rank].Err() == nil {
							t.Errorf("%s, waited for %v: rank %d is not broken", over, wait, rank)
						}
						w[rank].Close()
					}()
					if wait {
						return AllReduce(t.Context(), w[rank], []int32{1}, exit)
					}
					return IAllReduce(t.Context(), w[rank], []int32{1}, exit).Wait(t.Context())
				})
			})
		}
	}
}

func TestErrorOfAPanicIsInTheCallsError(t *testing.T) {
	why := errors.New("boom")
	w := newWorldOn(t, "local", 2, nil)
	errs := testkit.Each(2, func(rank int) error {
		return AllReduce(t.Context(), w[rank], []int32{1}, NewOp("boom", true, func(_, _, _ []int32) { panic(why) }))
	})
	if !errors.Is(errors.Join(errs...), why) {
		t.Errorf("got %v", errs)
	}
}

// In steady state no blocking call allocates on any rank. The test counts all mallocs of the process, which include those of links and
// attendants. The runtime may allocate in the meantime, which only adds to a count, so the least of several counts decides.
func TestBlockingCallsDoNotAllocate(t *testing.T) { // without the race detector
	if raceEnabled {
		t.Skip("counts allocations: the race detector makes some of its own")
	}
	const n = 50_000
	counts := []int{n / 2, n / 2}
	tests := []struct {
		name string
		do   func(ctx context.Context, c *Comm, out, in []float32) error
	}{
		{"all_reduce", func(ctx context.Context, c *Comm, out, _ []float32) error { return AllReduce(ctx, c, out, Sum) }},
		{"all_reduce_small", func(ctx context.Context, c *Comm, out, _ []float32) error { return AllReduce(ctx, c, out[:2], Avg) }},
		{"reduce", func(ctx context.Context, c *Comm, out, _ []float32) error { return Reduce(ctx, c, out, 1, Max) }},
		{"reduce_scatter", func(ctx context.Context, c *Comm, out, in []float32) error {
			return ReduceScatter(ctx, c, out[:n/2], in, Sum)
		}},
		{"reduce_scatter_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return ReduceScatterV(ctx, c, out[:n/2], in, counts, Sum)
		}},
		{"scan", func(ctx context.Context, c *Comm, out, _ []float32) error { return Scan(ctx, c, out, Sum) }},
		{"exscan", func(ctx context.Context, c *Comm, out, _ []float32) error { return Exscan(ctx, c, out, Sum) }},
		{"broadcast", func(ctx context.Context, c *Comm, out, _ []float32) error { return Broadcast(ctx, c, out, 0) }},
		{"all_gather", func(ctx context.Context, c *Comm, out, in []float32) error { return AllGather(ctx, c, out, in[:n/2]) }},
		{"all_gather_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return AllGatherV(ctx, c, out, in[:n/2], counts)
		}},
		{"gather", func(ctx context.Context, c *Comm, out, in []float32) error { return Gather(ctx, c, out, in[:n/2], 0) }},
		{"gather_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return GatherV(ctx, c, out, in[:n/2], counts, 0)
		}},
		{"scatter", func(ctx context.Context, c *Comm, out, in []float32) error { return Scatter(ctx, c, out[:n/2], in, 0) }},
		{"all_to_all", func(ctx context.Context, c *Comm, out, in []float32) error { return AllToAll(ctx, c, out, in) }},
		{"all_to_all_v", func(ctx context.Context, c *Comm, out, in []float32) error {
			return AllToAllV(ctx, c, out, counts, in, counts)
		}},
		{"barrier", func(ctx context.Context, c *Comm, _, _ []float32) error { return c.Barrier(ctx) }},
		{"messages", func(ctx context.Context, c *Comm, out, in []float32) error {
			if c.Rank() == 0 {
				if err := Send(ctx, c, in, 1, 3); err != nil {
					return err
				}
				_, err := Recv(ctx, c, out, 1, 3)
				return err
			}
			if _, err := Recv(ctx, c, out, AnySource, 3); err != nil {
				return err
			}
			return Send(ctx, c, in, 0, 3)
		}},
	}
	for _, over := range realTransports {
		w := newWorldOn(t, over, 2, nil)
		var out, in [2][]float32
		for rank := range out {
			out[rank], in[rank] = make([]float32, n), make([]float32, n)
		}
		for _, tt := range tests {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				// The runtime and the test itself make a few allocations. One allocation in each call of one rank would add 200 to every
				// count.
				const calls, bound, tries = 200, 200 / 4, 5
				var mallocs []uint64
				for len(mallocs) < tries {
					mallocs = append(mallocs, countMallocs(t, func(rank int, n int) error {
						for range n {
							if err := tt.do(t.Context(), w[rank], out[rank], in[rank]); err != nil {
								return err
							}
						}
						return nil
					}, calls))
					if mallocs[len(mallocs)-1] <= bound {
						return
					}
				}
				t.Errorf("%v allocations in %d calls of two ranks, never %d or fewer", mallocs, calls, bound)
			})
		}
	}
}

// countMallocs has two ranks make n calls each, after 20 that warm up, and returns how many allocations the process made during the n
// calls.
func countMallocs(t *testing.T, run func(rank, n int) error, n int) uint64 {
	t.Helper()
	start, warm := make(chan struct{}), make(chan error, 2)
	done := make(chan []error, 1)
	go func() {
		done <- testkit.Each(2, func(rank int) error {
			err := run(rank, 20)
			warm <- err
			if err != nil {
				return err
			}
			<-start
			return run(rank, n)
		})
	}()
	for range 2 {
		if err := <-warm; err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	close(start)
	must(t, <-done)
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
