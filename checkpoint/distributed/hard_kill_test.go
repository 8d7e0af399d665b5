package distributed_test

import (
	"bufio"
	"context"
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
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/vfs"
)

// The test binary is the victim, too: with this variable set the test saves until it is killed.
const hardVictim = "DDPBATCH_TEST_DISTRIBUTED_HARD_VICTIM"

// TestHardKillLoop kills a process of 1 or 4 ranks (SIGKILL) at random moments, again and again on one
// folder. Whatever it had reported is there, verifies, and is what was saved.
func TestHardKillLoop(t *testing.T) {
	if path := os.Getenv(hardVictim); path != "" {
		fmt.Fprintln(os.Stderr, victimSaves(path))
		os.Exit(1)
	}
	kills, bound := 200/thin(20), 20*time.Second
	const seed = 29
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "checkpoints")
	ctx := t.Context()
	start, newest, done := time.Now(), int64(0), 0
	for ; done < kills && time.Since(start) < bound; done++ {
		reported, err := killHard(path, done+1, done%3, time.Duration(rng.IntN(60_000))*time.Microsecond)
		need(t, err)
		newest = max(newest, reported)
		step, variant, err := newestOf(ctx, vfs.OS{}, path)
		need(t, err)
		if newest == 0 && step == 0 {
			continue
		}
		// The step after the reported one may be there, and, where saves overlap, the one after that.
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
	t.Logf("seed %d: %d kills in %v, %d steps", seed, done, time.Since(start).Round(time.Millisecond), newest)
	if newest == 0 {
		t.Error("no victim got anywhere")
	}
	left, err := filepath.Glob(filepath.Join(path, "step-*"))
	need(t, err)
	if len(left) > 6 { // two kept, the base of a delta, one being removed, one being saved, one of an earlier death
		t.Errorf("folders pile up: %v", left)
	}
}

// victimSaves goes on from the newest checkpoint, and prints every step once it is saved: what Save
// waited for, or what Wait says.
func victimSaves(path string) error {
	attempt, err := strconv.Atoi(os.Getenv(hardVictim + "_ATTEMPT"))
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
				fmt.Println("saved", info.Step)
			}
		}
		return err
	})
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
