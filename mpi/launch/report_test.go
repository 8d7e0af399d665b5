package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

// ranksDo has each rank of one node run its own shell script once all ranks have begun. Otherwise a rank might end before others start, and
// those would not take part in the end. In the scripts, $MARKS is a folder, "await FILE" waits until a file exists, and "ended RANK" until
// a rank has ended.
func ranksDo(t *testing.T, scripts ...string) *world {
	w := newWorld(t, []int{len(scripts)}, "")
	w.elastic(0, 3)
	decided := filepath.Join(w.dir.Path(), "attempts", "1", "verdict.json")
	text := fmt.Sprintf(`MARKS="$%s"; DECIDED='%s'; await() { while [ ! -e "$1" ]; do sleep 0.02; done; }
		ended() { await "$MARKS/pid$1"; while kill -0 $(cat "$MARKS/pid$1") 2>/dev/null; do sleep 0.02; done; }
		echo $$ > "$MARKS/tmp$RANK"; mv "$MARKS/tmp$RANK" "$MARKS/pid$RANK"
		for rank in $(seq 0 $((WORLD_SIZE - 1))); do await "$MARKS/pid$rank"; done
		case $RANK in `, workerFolder, decided)
	for rank, script := range scripts {
		text += fmt.Sprintf("%d) %s;; ", rank, script)
	}
	w.agents[0].Command = []string{"/bin/sh", "-c", text + "esac"}
	return w
}

const (
	noSpace  = `echo 'OSError: [Errno 28] No space left on device' >&2; exit 1`
	lostPeer = `echo 'RuntimeError: Connection closed by peer [127.0.0.1]:3000' >&2; exit 1`
	onTERM   = `echo > "$MARKS/ready$RANK"; while :; do sleep 0.02; done`
)

// Whether the run has saved does not depend on the order in which its ranks ended within some milliseconds.
func TestSavedDoesNotDependOnWhoEndedFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks []string
		cause string
		exit  int
		rank  int
		saved bool
	}{
		"one saves, then one fails to":    {[]string{"exit 75", `ended 0; await "$DECIDED"; ` + noSpace}, "crash", 1, 1, false},
		"one fails to save, then one has": {[]string{`await "$DECIDED"; exit 75`, noSpace}, "crash", 1, 1, false},
		"one saves, one fails silently":   {[]string{"exit 75", `ended 0; await "$DECIDED"; exit 5`}, "crash", 5, 1, false},
		"one saves, one only lost it":     {[]string{"exit 75", `ended 0; await "$DECIDED"; ` + lostPeer}, "stopped", 75, 0, true},
		"one saves, one must be killed":   {[]string{`await "$MARKS/ready1"; exit 75`, "trap '' TERM; " + onTERM}, "stopped", 75, 0, false},
		"both save":                       {[]string{"exit 75", `ended 0; await "$DECIDED"; exit 75`}, "stopped", 75, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ranksDo(t, tc.ranks...)
			w.elastic(0, 0)
			if tc.cause == "stopped" && !tc.saved { // one must be killed
				w.agents[0].Grace = 100 * time.Millisecond
			}
			v := w.agree(w.run())
			if v.Cause != tc.cause || v.Exit != tc.exit || v.FirstRank != tc.rank || v.Saved != tc.saved || v.Requeue != (tc.exit == 75) {
				t.Errorf("verdict is %+v", v)
			}
			if tc.exit != 75 && !strings.Contains(v.Report, fmt.Sprintf("rank %d on n1 exited with code %d", tc.rank, tc.exit)) {
				t.Errorf("report is\n%s", v.Report)
			}
			if tc.exit == 75 && !tc.saved && !strings.Contains(v.Message, "rank 1 was killed before it had ended") {
				t.Errorf("message is %q", v.Message)
			}
		})
	}
}

// A run that a signal stops has saved if no rank failed meanwhile.
func TestSignalledRunHasSavedIfNoRankFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		other string // what rank 1 does at TERM
		exit  int
		says  string // in message or report
	}{
		"both save":          {"exit 75", 75, ""},
		"one is just gone":   {"trap - TERM; kill $$", 75, ""},
		"one fails to save":  {noSpace, 143, "No space left on device"},
		"one must be killed": {":", 143, "rank 1 was killed before it had ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play := func(grace time.Duration) rundir.Verdict {
				w := ranksDo(t, "trap 'exit 75' TERM; "+onTERM, fmt.Sprintf("trap %q TERM; %s", tc.other, onTERM))
				w.agents[0].Grace = grace
				return w.agree(w.runUntil(signalWhen(t, w, "ready0", "ready1")))
			}
			grace := bound
			if name == "one must be killed" {
				grace = time.Second
			}
			v := play(grace)
			for ; killedBoth(v) && grace < testkit.Patience; v = play(grace) {
				grace *= 4 // on a busy machine the one that saves may need longer
			}
			if v.Cause != "cancelled" || v.Exit != tc.exit || v.Saved != (tc.exit == 75) || v.Requeue != v.Saved {
				t.Errorf("verdict is %+v", v)
			}
			if !strings.Contains(v.Message+v.Report, tc.says) {
				t.Errorf("message is %q, report\n%s", v.Message, v.Report)
			}
		})
	}
}

// killedBoth reports whether the agent had to kill both ranks.
func killedBoth(v rundir.Verdict) bool {
	return len(v.Ranks) == 2 && v.Ranks[0].Signal == int(syscall.SIGKILL) && v.Ranks[1].Signal == int(syscall.SIGKILL)
}

// If a worker prints a variable that may be secret, its value is in the worker's log, but not in the verdict, report or agent's log.
func TestSecretsAreInNoReport(t *testing.T) {
	const secret, inherited = "hf_b4d53cr3tb4d53cr3t", "w4nd8-1nh3r1t3d"
	w := ranksDo(t, `echo "token $MY_TOKEN" >&2; echo "key=$wandb_api_key; $TOKENIZERS_PARALLELISM, $MODE";
		printf '{"message": {"message": "E: %s", "extraInfo": {"py_callstack": "at %s", "timestamp": "1"}}}' \
			"$MY_TOKEN" "$wandb_api_key" >"$TORCHELASTIC_ERROR_FILE"
		exit 3`)
	c := &w.agents[0]
	c.Env = append(c.Env, "MY_TOKEN="+secret, "wandb_api_key="+inherited, "TOKENIZERS_PARALLELISM=false", "MODE=ordinary-value")
	v := w.agree(w.run())
	disk, err := os.ReadFile(filepath.Join(w.dir.Path(), "attempts", "1", "verdict.json"))
	must(t, err)
	for _, text := range []string{v.Report, v.Message, string(disk), w.log.String()} {
		if strings.Contains(text, secret) || strings.Contains(text, inherited) {
			t.Errorf("a secret is in\n%s", text)
		}
	}
	for _, want := range []string{"token ***", "key=***; false, ordinary-value", "E: ***"} {
		if !strings.Contains(v.Report, want) {
			t.Errorf("%q is not in the report:\n%s", want, v.Report)
		}
	}
	if got := w.logOf("n1", 0, "err") + w.logOf("n1", 0, "out"); got != "token "+secret+"\nkey="+inherited+"; false, ordinary-value\n" {
		t.Errorf("the worker said %q", got)
	}
}

// The file that the report names contains the rank's last words.
func TestLastWordsAreInTheFileThatIsNamed(t *testing.T) {
	for name, tc := range map[string]struct{ script, stream string }{
		"standard error":    {`echo progress; echo 'it failed' >&2; exit 3`, "err"},
		"standard output":   {`echo 'it failed'; exit 3`, "out"},
		"a line's end":      {`echo 'it failed'; echo >&2; exit 3`, "out"},
		"none":              {`exit 3`, ""},
		"none, by a signal": {`kill -KILL $$`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ranksDo(t, tc.script, onTERM)
			w.elastic(0, 0)
			v := w.agree(w.run())
			path := w.dir.LogPath(1, "n1", 0, tc.stream)
			if tc.stream == "" {
				if strings.Contains(v.Message, "last words") || strings.Contains(v.Report, "log: ") {
					t.Errorf("message %q and report name a file, but the rank printed nothing:\n%s", v.Message, v.Report)
				}
				return
			}
			if !strings.HasSuffix(v.Message, "; its last words are in "+path) || !strings.Contains(v.Report, "log: "+path+"\n") {
				t.Errorf("message %q and report are to name %s:\n%s", v.Message, path, v.Report)
			}
			if words := w.logOf("n1", 0, tc.stream); !strings.Contains(words, "it failed") {
				t.Errorf("%s holds %q", path, words)
			}
		})
	}
}

// signalWhen returns a context that ends as by TERM when all marks exist.
func signalWhen(t *testing.T, w *world, marks ...string) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	go func() {
		w.awaitMarks(marks...)
		cancel(SignalError{Sig: syscall.SIGTERM})
	}()
	return ctx
}

// Exit code 93 of any rank ends the run, whichever rank failed first, and whatever the others say.
func TestExitCode93OfAnyRankEndsTheRun(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks    []string
		reported bool
		cause    string
		rank     int
	}{
		"alone":                       {[]string{"exit 93", "exit 0"}, false, "crash", 0},
		"one saves, then one says it": {[]string{"exit 75", `ended 0; await "$DECIDED"; exit 93`}, false, "crash", 1},
		"one crashes before":          {[]string{`await "$MARKS/ready1"; exit 1`, "trap 'exit 93' TERM; " + onTERM}, false, "crash", 0},
		"told to stop, and one saves": {[]string{"trap 'exit 75' TERM; " + onTERM, "trap 'exit 93' TERM; " + onTERM},
			true, "cancelled", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ranksDo(t, tc.ranks...)
			ctx := t.Context()
			if tc.reported {
				ctx = signalWhen(t, w, "ready0", "ready1")
			}
			v := w.agree(w.runUntil(ctx))
			if v.Exit != exit.Never || v.Requeue || v.Round != 0 || v.Cause != tc.cause || v.FirstRank != tc.rank {
				t.Errorf("verdict is %+v", v)
			}
			if !strings.Contains(v.Message, "exited with code 93") {
				t.Errorf("message is %q", v.Message)
			}
		})
	}
}

// A rank that reports that it ran out of memory counts as such, even if the kernel does not confirm it.
func TestRanksOwnWordsReportOutOfMemory(t *testing.T) {
	w := ranksDo(t, `echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.' >&2; exit 1`, `ended 0; `+lostPeer)
	w.elastic(0, 0)
	if v := w.agree(w.run()); v.Cause != "oom" || v.Exit != 1 || v.FirstRank != 0 || !v.OOM {
		t.Errorf("verdict is %+v", v)
	}
}

// If a rank failed only because it lost a rank that had ended with 0, the report says so: their data may have had different lengths.
func TestReportSaysThatARankEndedEarly(t *testing.T) {
	w := ranksDo(t, "ended 1; "+lostPeer, "exit 0")
	w.elastic(0, 0)
	v := w.agree(w.run())
	if v.Cause != "crash" || v.FirstRank != 0 || len(v.Ranks) != 1 || !strings.Contains(v.Report, "rank 1 had ended with 0") {
		t.Errorf("verdict is %+v", v)
	}
}
