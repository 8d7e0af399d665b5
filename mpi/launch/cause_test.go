package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

const (
	lacksTorch = "ModuleNotFoundError: No module named 'torch'"
	noTorch    = `printf 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    import torch\n%s\n' "` +
		lacksTorch + `" >&2; exit 1`
)

// A failure that a restart cannot fix does not cause one, whatever max_restarts allows. The verdict and the report say what was wrong and
// what to do.
func TestNoRestartMendsAMissingModule(t *testing.T) {
	w := ranksDo(t, noTorch, "ended 0; "+lostPeer)
	v := w.agree(w.run())
	if v.Cause != "crash" || v.FirstRank != 0 || v.Round != 0 || !v.Final || v.Class != "program" || v.Error != lacksTorch {
		t.Errorf("verdict is %+v", v)
	}
	path := "the python3 of the workers" // if the workers' PATH has no python3
	for _, folder := range []string{"/bin", "/usr/bin"} {
		if _, err := os.Stat(filepath.Join(folder, "python3")); err == nil {
			path = filepath.Join(folder, "python3")
		}
	}
	report := strings.Join(strings.Fields(v.Report), " ") // in one line
	if !strings.HasPrefix(v.Advice, path+" has no module torch: ") || !strings.Contains(report, "hint: "+v.Advice) {
		t.Errorf("%q in the report\n%s", v.Advice, v.Report)
	}
	history, err := w.dir.Ledger()
	must(t, err)
	if end := history[len(history)-1]; end.Error != v.Error || end.Class != v.Class || !end.Final || end.Trace == "" {
		t.Errorf("the ledger ends with %+v", end)
	}
}

// The same traceback twice before the first step ends the run. A different one each time does not.
func TestSameTracebackTwiceIsTheLast(t *testing.T) {
	raise := func(line string) string {
		return `printf 'Traceback (most recent call last):\n  File "train.py", line %s, in <module>\n    main()\nKeyError: lr\n' ` +
			line + ` >&2; exit 1`
	}
	for name, test := range map[string]struct {
		line   string
		rounds int
	}{"the same": {"7", 2}, "another each time": {"$DDPBATCH_ROUND", 4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ranksDo(t, raise(test.line))
			must(t, w.dir.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: 1, Job: w.agents[0].JobID}))
			if v := w.agree(w.run()); v.Cause != "crash" || v.Final || v.Round != test.rounds-1 || v.Error != "KeyError: lr" {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
}

// If a rank reports that its hardware failed, the verdict blames its node. The restart leaves that node out if the others are enough for
// the run.
func TestFailedNodeIsLeftOut(t *testing.T) {
	for name, test := range map[string]struct{ least, left int }{"the others are enough": {1, 1}, "all are needed": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, []int{1, 1}, "")
			w.elastic(test.least, 1)
			for i := range w.agents {
				w.agents[i].Command = []string{"/bin/sh", "-c", `[ "$DDPBATCH_ROUND" = 0 ] || { echo "of $WORLD_SIZE"; exit 0; }
					[ "$RANK" = 1 ] || while :; do sleep 0.02; done
					echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1`}
			}
			results := w.run()
			if v := results[0].Verdict; v.Cause != "done" || v.Round != 1 || results[0].err != nil {
				t.Errorf("verdict is %+v, %v", v, results[0].err)
			}
			v, err := w.dir.Verdict(1)
			named := v.Host == "n2" && slices.Equal(v.Nodes, []string{"n2"})
			if err != nil || v.Cause != "node" || !named || v.Class != "infrastructure" || !v.Restart {
				t.Errorf("the first round's verdict is %+v, %v", v, err)
			}
			if got, want := w.logAt(2, "n1", 0, "out"), "of "+string(rune('0'+test.left))+"\n"; got != want {
				t.Errorf("rank 0 of the second round says %q, want %q", got, want)
			}
		})
	}
}
