package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// hanging makes a run with one worker on each node: a shell that runs the node's script. The workers hang if they are silent for that long.
func hanging(t *testing.T, after time.Duration, scripts ...string) *world {
	t.Helper()
	w := newWorld(t, make([]int, len(scripts)), "")
	for i, script := range scripts {
		w.agents[i].Nproc, w.agents[i].HangAfter = 1, after
		w.agents[i].Command = []string{"/bin/sh", "-c", script}
	}
	return w
}

// speak is a script that prints something every tenth of a second, n times.
const speak = `speak() { i=0; while [ $i -lt $1 ]; do echo; sleep 0.1; i=$((i+1)); done; }; `

// checkHang checks a verdict of workers that hung.
func checkHang(t *testing.T, v rundir.Verdict, rank int, host string, words ...string) {
	t.Helper()
	var nodes []string
	if host != "" {
		nodes = []string{host}
	}
	if v.Cause != "hang" || v.Exit != 1 || v.FirstRank != rank || v.Host != host || !slices.Equal(v.Nodes, nodes) || v.Saved || v.OOM {
		t.Errorf("verdict is %+v", v)
	}
	for _, word := range words {
		if !strings.Contains(v.Message, word) {
			t.Errorf("message is %q, without %q", v.Message, word)
		}
	}
	if !strings.HasPrefix(v.Report, v.Message+"\n") {
		t.Errorf("report is\n%s", v.Report)
	}
}

func TestSilentWorkerIsAHang(t *testing.T) {
	t.Parallel()
	w := hanging(t, 2*time.Second, "echo the last word; sleep 3600")
	r := w.run()
	v := w.agree(r)
	checkHang(t, v, 0, "n1", "rank 0 on n1 gave no sign of life for ", "(no heartbeat, no output, no CPU time)")
	if took := r[0].took; took < 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(v.Ranks) != 1 || v.Ranks[0] != (rundir.RankEnd{Rank: 0, Host: "n1", Signal: int(syscall.SIGTERM)}) {
		t.Errorf("ranks ended as %+v", v.Ranks)
	}
	path := w.dir.LogPath(1, "n1", 0, "stacks")
	for _, word := range []string{"asleep", "stacks: " + path, "the last word"} {
		if !strings.Contains(v.Report, word) {
			t.Errorf("report is without %q:\n%s", word, v.Report)
		}
	}
	for _, word := range []string{`"sh"`, `"sleep"`, "nanosleep("} {
		if text := w.logOf("n1", 0, "stacks"); !strings.Contains(text, word) {
			t.Errorf("stacks are without %s:\n%s", word, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the stacks' file: %v, %v", info, err)
	}
}

// A hung Go program writes the stacks of its goroutines to its own log, and dies of the signal that asks for them. The report shows what it
// printed before.
func TestHungGoProgramLeavesItsStacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []int{1}, "hang")
	w.agents[0].HangAfter = 2 * time.Second
	v := w.agree(w.run())
	checkHang(t, v, 0, "n1")
	if strings.Contains(v.Report, "goroutine") || strings.Contains(v.Report, "| rip ") || !strings.Contains(v.Report, "the last word") {
		t.Errorf("report is\n%s", v.Report)
	}
	if text := w.log.String(); strings.Count(text, "ddpbatch asks the ranks for their stacks") != 1 {
		t.Errorf("the agent's log is\n%s", text)
	}
	if text := w.logOf("n1", 0, "err"); !strings.Contains(text, "SIGQUIT") || !strings.Contains(text, "launch.workerMain") {
		t.Errorf("it left\n%s", text)
	}
	if text := w.logOf("n1", 0, "stacks"); !strings.Contains(text, "is written in Go") {
		t.Errorf("its stacks are\n%s", text)
	}
}

// A worker that gives any sign of life does not count as hung.
func TestWorkersThatGoOnDoNotHang(t *testing.T) {
	t.Parallel()
	for name, scripts := range map[string][]string{ // each gives its sign for about 4*$F seconds
		"output":    {speak + "speak $((40*F))"},
		"CPU time":  {`end=$(($(date +%s)+4*F)); while [ $(date +%s) -lt $end ]; do :; done`},
		"heartbeat": {`i=0; while [ $i -lt $((8*F)) ]; do touch $DDPBATCH_HEARTBEAT_FILE; sleep 0.5; i=$((i+1)); done`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play := func(factor int) rundir.Verdict {
				w := hanging(t, time.Duration(2*factor)*time.Second, scripts...)
				for i := range w.agents {
					w.agents[i].Env = append(w.agents[i].Env, fmt.Sprint("F=", factor))
				}
				return w.agree(w.run())
			}
			v := play(1)
			if v.Cause == "hang" { // a busy machine may keep a worker from running for that long, but hardly for four times as long
				t.Logf("once more, in four times the time: %s", v.Message)
				v = play(4)
			}
			if v.Cause != "done" {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
}

// A worker that has written its heartbeat file once counts as hung when it stops doing so, even if it keeps a processor busy.
func TestBusyWorkerWithoutHeartbeatsHangs(t *testing.T) {
	t.Parallel()
	w := hanging(t, 2*time.Second, `touch $DDPBATCH_HEARTBEAT_FILE; while :; do echo; done > /dev/null`)
	checkHang(t, w.agree(w.run()), 0, "n1", "rank 0 on n1 gave no sign of life", "(no heartbeat, though there was one before)")
}

// The verdict blames a stopped worker, because the others wait for it. The agent continues that worker, so that TERM ends it.
func TestStoppedWorkerIsNamedForAHang(t *testing.T) {
	t.Parallel()
	// The others give signs of life until rank 1 is stopped, so that rank 1 is the first to fall silent.
	pid := filepath.Join(t.TempDir(), "pid")
	w := hanging(t, 2*time.Second, `if [ $RANK = 1 ]; then echo $$ > `+pid+`.new; mv `+pid+`.new `+pid+`; kill -STOP $$; fi
until grep -q '^State:.[Tt]' /proc/$(cat `+pid+`)/status 2>/dev/null || [ $RANK = 1 ]; do echo; sleep 0.05; done
exec sleep 3600`)
	w.agents[0].Nproc = 3
	r := w.run()
	v := w.agree(r)
	checkHang(t, v, 1, "n1", "rank 1 on n1 was stopped (SIGSTOP) and gave no sign of life")
	if len(v.Ranks) != 3 || v.Ranks[0].Rank != 1 || v.Ranks[0].Signal != int(syscall.SIGTERM) ||
		v.Ranks[0].Followed || !v.Ranks[1].Followed {
		t.Errorf("ranks ended as %+v", v.Ranks)
	}
	if text := w.logOf("n1", 1, "stacks"); !strings.Contains(text, "stopped by a signal (SIGSTOP") {
		t.Errorf("its stacks are\n%s", text)
	}
}

func TestRunRestartsAfterAHang(t *testing.T) {
	t.Parallel()
	hangs := `[ $DDPBATCH_ROUND = 0 ] && exec sleep 3600; echo $DDPBATCH_HEARTBEAT_FILE`
	w := hanging(t, 2*time.Second, hangs, hangs)
	w.elastic(0, 1)
	if v := w.agree(w.run()); v.Cause != "done" || v.Round != 1 {
		t.Errorf("verdict is %+v", v)
	}
	v, err := w.dir.Verdict(1)
	if err != nil || v.Cause != "hang" || !v.Restart || !strings.Contains(v.Report, "next: ") {
		t.Errorf("attempt 1: %+v, %v", v, err)
	}
	for rank, host := range []string{"n1", "n2"} { // each node reports its own stacks
		if path := w.dir.LogPath(1, host, rank, "stacks"); !strings.Contains(v.Report, "stacks: "+path+"\n") ||
			w.logOf(host, rank, "stacks") == "" {
			t.Errorf("report is\n%s", v.Report)
		}
	}
	if got := w.logAt(2, "n2", 1, "out"); !strings.HasPrefix(got, privatePath) || !strings.HasSuffix(got, "/1.heartbeat\n") {
		t.Errorf("the next round's heartbeat file is %q, which is not on the node", got)
	}
}

// Without HangAfter, the agent does not watch its workers, and does not pass on the heartbeat file of another run's agent.
func TestHangAfterZeroLooksAtNothing(t *testing.T) {
	t.Parallel()
	w := hanging(t, 0, `sleep 3; echo "<$DDPBATCH_HEARTBEAT_FILE>"`)
	w.agents[0].Env = append(w.agents[0].Env, "DDPBATCH_HEARTBEAT_FILE=/of/another/run")
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	if got := w.logOf("n1", 0, "out"); got != "<>\n" {
		t.Errorf("the heartbeat file is %s", got)
	}
}

// Heartbeat files are in a folder that only this user can enter, and that the agent removes. Without a run directory, the report contains
// the stacks.
func TestHangWithoutARunDirectoryReportsStacks(t *testing.T) {
	t.Parallel()
	w := hanging(t, 2*time.Second, `ls -ld "${DDPBATCH_HEARTBEAT_FILE%/*}/"; touch "$DDPBATCH_HEARTBEAT_FILE"; exec sleep 3600`)
	w.agents[0].RunDir, w.agents[0].Attempt = nil, 0
	r := w.run()
	if r[0].err != nil {
		t.Error(r[0].err)
	}
	checkHang(t, r[0].Verdict, 0, "n1", "though there was one before")
	if report := r[0].Report; !strings.Contains(report, "\n    | process ") || !strings.Contains(report, "nanosleep(") {
		t.Errorf("report is\n%s", report)
	}
	said := w.out.String()
	_, folder, ok := strings.Cut(strings.TrimSpace(said), " "+privatePath)
	if !strings.HasPrefix(said, "drwx------") || !ok {
		t.Errorf("the folder was %q", said)
	}
	if _, err := os.Stat(privatePath + folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestStacksOfAHangAreInTheLogDir(t *testing.T) {
	t.Parallel()
	w := hanging(t, 2*time.Second, "exec sleep 3600")
	w.agents[0].RunDir, w.agents[0].Attempt, w.agents[0].LogDir = nil, 0, t.TempDir()
	r := w.run()
	checkHang(t, r[0].Verdict, 0, "n1")
	found, err := filepath.Glob(filepath.Join(w.agents[0].LogDir, "*", "attempt_0", "0", "stacks.txt"))
	if err != nil || len(found) != 1 || !strings.Contains(r[0].Report, "stacks: "+found[0]+"\n") {
		t.Errorf("%v, %v; report is\n%s", found, err, r[0].Report)
	}
}
