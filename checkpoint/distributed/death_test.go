package distributed

import (
	"context"
	"sync/atomic"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
)

// TestDeathAtEveryCollective: a rank dies, or its context ends, before its k-th collective, for every k. Nobody hangs, and what
// was acknowledged is there.
func TestDeathAtEveryCollective(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Async: true}, {}, {Async: true, Local: localPath}} {
		for victim := range 3 {
			sparse := 1 + thin.Step(10) // of every rank other crash points
			for k := 1 + victim%sparse; ; k += sparse {
				if !dies(t, o, victim, k) {
					break
				}
			}
		}
	}
}

// dies says whether the victim got as far as its k-th collective.
func dies(t *testing.T, o Options, victim, k int) (reached bool) {
	disk, fs := newDisk(t)
	m := newMeeting(3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.fault = func(rank, call int) error {
		if rank != victim || call != k {
			return nil
		}
		reached = true
		if k%2 == 0 {
			cancel()
			return nil
		}
		return errDead
	}
	var acknowledged atomic.Int64
	acknowledged.Store(-1)
	testkit.Within(t, testkit.Patience, func() {
		trial{world: 3, attempt: 1, o: o, fs: fs, meeting: m}.run(ctx, func(ctx context.Context, r *one) error {
			for step := int64(1); step <= 2; step++ {
				if err := r.save(ctx, step); err != nil {
					return err
				}
				info, err := r.Wait(ctx)
				if err != nil {
					return err
				}
				acknowledged.Store(info.Step)
			}
			return nil
		})
	})
	step, err := latest(disk, 1)
	if err != nil || step < acknowledged.Load() {
		t.Fatalf("rank %d dies at %d: step %d was acknowledged, the latest is %d: %v", victim, k, acknowledged.Load(), step, err)
	}
	return reached
}
