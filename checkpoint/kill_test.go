package checkpoint

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
)

// The test binary is the victim, too: with this variable set it saves until it is killed.
const killVariable = "DDPBATCH_TEST_CHECKPOINT_VICTIM"

func TestMain(m *testing.M) {
	if path := os.Getenv(killVariable); path != "" {
		attempt, err := strconv.Atoi(os.Args[1])
		if err == nil {
			err = saveForever(path, attempt)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// saveForever goes on from the newest checkpoint, and prints every step once it is saved.
func saveForever(path string, attempt int) error {
	d, err := Open(path, Options{Keep: Policy{Last: 2}, Run: "kill", Attempt: attempt})
	if err != nil {
		return err
	}
	step := int64(0)
	switch s, _, err := d.Latest(context.Background()); {
	case err == nil:
		step = s.Step
	case !errors.Is(err, ErrNone):
		return err
	}
	for {
		step++
		if _, err := d.Save(context.Background(), testState(step, 0)); err != nil {
			return err
		}
		fmt.Println(step)
	}
}

// TestKillLoop kills a saving process with SIGKILL at random moments. No step that it reported is
// ever lost, and each next process can read what the one before it left.
func TestKillLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for some seconds; not with -short")
	}
	const kills, seed, bound = 40, 11, 10 * time.Second
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "checkpoints")
	start, newest, done := time.Now(), int64(0), 0
	for ; done < kills && time.Since(start) < bound; done++ {
		// Every other victim is left alone until its first report, so that there is progress.
		reported, err := killOnce(path, done+1, done%2, time.Duration(rng.IntN(100_000))*time.Microsecond)
		must(t, err)
		newest = max(newest, reported)
		d, err := Open(path, Options{})
		must(t, err)
		s, info, err := d.Latest(context.Background())
		if errors.Is(err, ErrNone) && newest == 0 {
			continue // killed before the first commit
		}
		must(t, err)
		if info.Step < newest || reported > 0 && info.Step > reported+1 {
			t.Fatalf("kill %d: step %d was reported, the latest is %d", done+1, newest, info.Step)
		}
		wantState(t, s, testState(info.Step, 0))
		newest = info.Step
	}
	t.Logf("seed %d: %d kills in %v, %d steps", seed, done, time.Since(start).Round(time.Millisecond), newest)
	if newest == 0 {
		t.Error("no victim got anywhere")
	}
	left, err := filepath.Glob(filepath.Join(path, "step-*"))
	must(t, err)
	if len(left) > 4 { // two kept, one being pruned, one being saved
		t.Errorf("folders pile up: %v", left)
	}
}

// killOnce starts a victim, waits for it to report so many steps and then a little longer, kills
// it, and returns the last step that it reported, 0 for none.
func killOnce(path string, attempt, steps int, longer time.Duration) (last int64, err error) {
	victim := exec.Command(os.Args[0], strconv.Itoa(attempt))
	victim.Env = append(os.Environ(), killVariable+"="+path)
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
	if steps == 0 {
		kill()
	}
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		if last, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
			victim.Process.Kill()
			break
		}
		if n == steps {
			kill()
		}
	}
	victim.Wait() // says only that it was killed
	if trouble.Len() > 0 {
		return last, fmt.Errorf("victim %d: %s", attempt, &trouble)
	}
	return last, err
}
