package distributed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/vfs"
)

// victimVariable is set for the victim, which is the test binary itself: the test then saves until it is killed.
const victimVariable = "DDPBATCH_TEST_DISTRIBUTED_VICTIM"

// TestKilledRanksKeepWhatTheySaved kills processes of 1 or 4 ranks (SIGKILL) that save into one folder, one after another and each at a
// random moment. After each kill, the newest checkpoint is not older than what was reported, verifies, and holds what was saved.
func TestKilledRanksKeepWhatTheySaved(t *testing.T) { // without the race detector
	if path := os.Getenv(victimVariable); path != "" {
		fmt.Fprintln(os.Stderr, victimSaves(path))
		os.Exit(1)
	}
	kills := 200 / thin.Step(20)
	const seed = 29
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "checkpoints")
	ctx := t.Context()
	start, newest := time.Now(), int64(0)
	for done := range kills {
		env := []string{victimVariable + "=" + path, fmt.Sprintf("%s_ATTEMPT=%d", victimVariable, done+1)}
		after := time.Duration(rng.IntN(60_000)) * time.Microsecond
		reported, err := testkit.Kill(ctx, "TestKilledRanksKeepWhatTheySaved", env, done%3, after)
		need(t, err)
		newest = max(newest, reported)
		step, variant, err := newestOf(ctx, vfs.OS{}, path)
		need(t, err)
		if newest == 0 && step == 0 {
			continue
		}
		// The step after the reported one may be there, and, if saves overlap, the one after that.
		if step < newest || step > newest+2 || variant != 0 {
			t.Fatalf("seed %d, kill %d: step %d was reported, the newest is %d", seed, done+1, newest, step)
		}
		newest = step
		steps, err := wholeDisk(ctx, vfs.OS{}, path)
		need(t, err)
		if len(steps) < 2 && newest > 2 {
			t.Fatalf("seed %d, kill %d: only %v are there, two are kept", seed, done+1, steps)
		}
	}
	t.Logf("seed %d: %d kills in %v, %d steps", seed, kills, time.Since(start).Round(time.Millisecond), newest)
	if newest == 0 {
		t.Error("no victim got anywhere")
	}
	left, err := filepath.Glob(filepath.Join(path, "step-*"))
	need(t, err)
	if len(left) > 6 { // two kept, a delta's base, one being removed, one being saved, one of an earlier victim
		t.Errorf("folders pile up: %v", left)
	}
}

// victimSaves resumes from the newest checkpoint and saves. After every second save it waits, and reports the step that Wait returns.
func victimSaves(path string) error {
	attempt, err := strconv.Atoi(os.Getenv(victimVariable + "_ATTEMPT"))
	if err != nil {
		return err
	}
	j := job{
		world: 1 + 3*(attempt%2), attempt: attempt, path: path, fs: same(vfs.OS{}), keep: checkpoint.Policy{Last: 2},
		saver: distributed.Options{Async: attempt%4 < 2, Delta: attempt % 3},
	}
	ctx := context.Background()
	return j.run(ctx, func(r *rank) error {
		step, err := r.resume(ctx)
		for err == nil {
			step++
			if err = r.save(ctx, step, 0); err != nil || step%2 == 1 {
				continue
			}
			var info checkpoint.Info
			if info, err = r.Wait(ctx); err == nil && r.number == 0 {
				testkit.Saved(info.Step)
			}
		}
		return err
	})
}
