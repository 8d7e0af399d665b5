package checkpoint_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
)

// The test binary is the victim, too: with this variable set the test saves until it is killed.
const hardVictim = "DDPBATCH_TEST_CHECKPOINT_HARD_VICTIM"

// TestHardKillLoop kills a saving process (SIGKILL) at random moments, again and again on one folder.
// Whatever it had reported is there, verifies, and is what was saved.
func TestHardKillLoop(t *testing.T) {
	if path := os.Getenv(hardVictim); path != "" {
		fmt.Fprintln(os.Stderr, victimSaves(path))
		os.Exit(1)
	}
	kills, bound := 200/thin(20), 20*time.Second
	const seed = 23
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "checkpoints")
	ctx := t.Context()
	start, newest, done := time.Now(), int64(0), 0
	for ; done < kills && time.Since(start) < bound; done++ {
		reported, err := killHard(path, done+1, done%3, time.Duration(rng.IntN(40_000))*time.Microsecond)
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
		need(t, d.Verify(ctx, info.Step, true))
		if newest = info.Step; newest > 1 { // the one before it is kept, too
			need(t, d.Verify(ctx, newest-1, true))
		}
	}
	t.Logf("seed %d: %d kills in %v, %d steps", seed, done, time.Since(start).Round(time.Millisecond), newest)
	if newest == 0 {
		t.Error("no victim got anywhere")
	}
	left, err := filepath.Glob(filepath.Join(path, "step-*"))
	need(t, err)
	if len(left) > 5 { // two kept, one being removed, one being saved, one of an earlier death
		t.Errorf("folders pile up: %v", left)
	}
}

// victimSaves goes on from the newest checkpoint, and prints every step once it is saved.
func victimSaves(path string) error {
	ctx := context.Background()
	attempt, err := strconv.Atoi(os.Getenv(hardVictim + "_ATTEMPT"))
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
			fmt.Println("saved", step)
		}
	}
	return err
}

// killHard starts a victim, waits for so many reports and then a little longer, kills it, and returns
// the last step that it reported, 0 for none.
func killHard(path string, attempt, reports int, longer time.Duration) (last int64, err error) {
	victim := exec.Command(os.Args[0], "-test.run=^TestHardKillLoop$")
	victim.Env = append(os.Environ(), hardVictim+"="+path, fmt.Sprintf("%s_ATTEMPT=%d", hardVictim, attempt))
	out, err := victim.StdoutPipe()
	if err != nil {
		return 0, err
	}
	var trouble strings.Builder
	victim.Stderr = &trouble
	if err := victim.Start(); err != nil {
		return 0, err
	}
	kill := func() { time.AfterFunc(longer, func() { victim.Process.Kill() }) }
	if reports == 0 {
		kill()
	}
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		number, ok := strings.CutPrefix(lines.Text(), "saved ")
		if last, err = strconv.ParseInt(number, 10, 64); !ok || err != nil {
			victim.Process.Kill()
			break
		}
		if n == reports {
			kill()
		}
	}
	victim.Wait() // says only that it was killed
	if trouble.Len() > 0 {
		return last, fmt.Errorf("victim %d: %s", attempt, &trouble)
	}
	return last, err
}
