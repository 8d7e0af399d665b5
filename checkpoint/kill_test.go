package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
)

// victimVariable is set for the victim, which is the test binary itself: the test then saves until it is killed.
const victimVariable = "DDPBATCH_TEST_CHECKPOINT_VICTIM"

// TestKilledSavesKeepWhatTheyReported kills processes (SIGKILL) that save into one folder, one after another and each at a random moment.
// After each kill, the latest checkpoint is the newest step that was reported or the step after it, verifies, and holds what was saved.
func TestKilledSavesKeepWhatTheyReported(t *testing.T) { // without the race detector
	if path := os.Getenv(victimVariable); path != "" {
		fmt.Fprintln(os.Stderr, victimSaves(path))
		os.Exit(1)
	}
	kills := 200 / thin.Step(20)
	const seed = 23
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "checkpoints")
	ctx := t.Context()
	start, newest := time.Now(), int64(0)
	for done := range kills {
		env := []string{victimVariable + "=" + path, fmt.Sprintf("%s_ATTEMPT=%d", victimVariable, done+1)}
		after := time.Duration(rng.IntN(40_000)) * time.Microsecond
		reported, err := testkit.Kill(ctx, "TestKilledSavesKeepWhatTheyReported", env, done%3, after)
		need(t, err)
		newest = max(newest, reported)
		d, err := checkpoint.Open(path, checkpoint.Options{Run: "kill"})
		need(t, err)
		s, info, err := d.Latest(ctx)
		if errors.Is(err, checkpoint.ErrNone) && newest == 0 {
			continue
		}
		need(t, err)
		if info.Step < newest || info.Step > newest+1 {
			t.Fatalf("seed %d, kill %d: step %d was reported, the latest is %d", seed, done+1, newest, info.Step)
		}
		need(t, hardSame(s, hardState(info.Step, 0)))
		need(t, checkpoint.VerifyStep(ctx, d, info.Step))
		if newest = info.Step; newest > 1 { // the checkpoint before it stays, too
			need(t, checkpoint.VerifyStep(ctx, d, newest-1))
		}
	}
	t.Logf("seed %d: %d kills in %v, %d steps", seed, kills, time.Since(start).Round(time.Millisecond), newest)
	if newest == 0 {
		t.Error("no victim got anywhere")
	}
	left, err := filepath.Glob(filepath.Join(path, "step-*"))
	need(t, err)
	if len(left) > 5 { // two kept, one being removed, one being saved, one of an earlier victim
		t.Errorf("folders pile up: %v", left)
	}
}

// victimSaves resumes from the newest checkpoint, and reports every step after it has saved it.
func victimSaves(path string) error {
	ctx := context.Background()
	attempt, err := strconv.Atoi(os.Getenv(victimVariable + "_ATTEMPT"))
	if err != nil {
		return err
	}
	d, err := checkpoint.Open(path, checkpoint.Options{Keep: checkpoint.Policy{Last: 2}, Run: "kill", Attempt: attempt})
	if err != nil {
		return err
	}
	step, err := resume(d)
	for err == nil {
		step++
		if _, err = d.Save(ctx, hardState(step, 0)); err == nil {
			testkit.Saved(step)
		}
	}
	return err
}
