package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// A user's operation that panics is an error of the call, waited for or not, and breaks the Comm: the others hear of it, it is in the flight
// recorder's file, and the Comm can be closed.
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

// Who gives up waiting for its turn says what it wanted, and touches nothing of the call that runs.
func TestGivesUpItsTurn(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *Comm) error{
		"all_reduce": func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []int32{1}, Sum) },
		"new_group":  func(ctx context.Context, c *Comm) error { _, err := c.Dup(ctx); return err },
		"alloc":      func(ctx context.Context, c *Comm) error { _, err := Alloc[int32](ctx, c, 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, "local", 2, nil)
			running := w[0].IBarrier(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := call(ctx, w[0]); err == nil || !strings.Contains(err.Error(), name+": waited for its turn until") {
				t.Errorf("got %v", err)
			}
			if err := running.Wait(t.Context()); err == nil {
				t.Error("the barrier of one rank is over")
			}
		})
	}
}
