package distributed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestFailedProbeOfOneRankFailsAll makes each kind of operation on the shared folder fail on each rank in turn. New must fail on all ranks,
// before training begins, with the number of that rank and the reason.
func TestFailedProbeOfOneRankFailsAll(t *testing.T) {
	t.Parallel()
	const world = 3
	for _, kind := range []string{"create", "write", "sync", "rename", "read", "remove", "syncdir"} {
		for victim := range world {
			disk, _ := newDisk(t)
			full := vfstest.NewInjector(disk, func(_ int, op vfstest.Op) vfstest.Fault {
				if op.Kind == kind && strings.HasPrefix(op.Path, sharedPath) {
					return vfstest.Fault{Err: syscall.ENOSPC}
				}
				return vfstest.Fault{}
			})
			errs := trial{world: world, attempt: 1, fs: func(rank int) vfs.FS {
				if rank == victim {
					return full
				}
				return disk
			}}.run(t.Context(), func(context.Context, *one) error { return errors.New("New has succeeded") })
			for rank, err := range errs {
				if !errors.Is(err, checkpoint.ErrNoSpace) || !strings.HasPrefix(err.Error(), "prepare checkpoints: ") ||
					!strings.Contains(err.Error(), fmt.Sprintf("rank %d: ", victim)) ||
					!strings.Contains(err.Error(), "cannot save in "+sharedPath) {
					t.Errorf("%s fails on rank %d: rank %d: %v", kind, victim, rank, err)
				}
			}
		}
	}
}

// If there is too little room for everything that the policy keeps, the log says so before training, with the bytes needed and the bytes
// free.
func TestTooLittleRoomIsReportedBeforeTraining(t *testing.T) {
	t.Parallel()
	const state = 20000 + 666 + 1000 + 1001 // arraysOf, two ranks
	for name, test := range map[string]struct {
		free  int64
		delta int
		warns string // "" means no warning
	}{
		"4 of 5":             {4 * state, 0, "needs_bytes=113335 free_bytes=90668"},
		"5 of 5":             {5 * state, 0, ""},
		"5 of 6 with a base": {5 * state, 2, "needs_bytes=136002 free_bytes=113335"},
		"not even one":       {state - 1, 0, "needs_bytes=113335 free_bytes=22666"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			disk.SetLimit(test.free)
			var log bytes.Buffer
			o := Options{Async: test.delta > 0, Delta: test.delta, Log: slog.New(slog.NewTextHandler(&log, nil))}
			codec := "none"
			if test.delta > 0 {
				codec = "auto"
			}
			keep := checkpoint.Policy{Last: 3, Best: 1, Metric: "loss"}
			mustAll(t, trial{world: 2, attempt: 1, o: o, codec: codec, keep: keep, fs: fs}.run(t.Context(),
				func(context.Context, *one) error { return nil }))
			if got := log.String(); !strings.Contains(got, test.warns) || strings.Contains(got, "WARN") != (test.warns != "") {
				t.Errorf("log %q, want a warning: %q", got, test.warns)
			}
		})
	}
}
