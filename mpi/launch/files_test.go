package launch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/output"
)

// The folder of --log-dir has torchrun's layout, with a folder for each round. The verdict names a file in it.
func TestLogDirHasTorchrunsLayout(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "1", "1", "3")
	w.elastic(0, 1)
	dir := t.TempDir()
	for i := range w.agents {
		w.agents[i].LogDir = filepath.Join(dir, w.agents[i].Host)
		w.agents[i].Output = output.Config{Prefix: "<${rank}> ", OutFilters: []string{"1 2 1"}}
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	for _, round := range []string{"attempt_0", "attempt_1"} {
		found, err := filepath.Glob(filepath.Join(dir, "n2", "*", round, "0", "stdout.log"))
		must(t, err)
		if len(found) != 1 {
			t.Fatalf("%s: found %v", round, found)
		}
		text, err := os.ReadFile(found[0])
		if err != nil || !strings.HasPrefix(string(text), "1 2 1 2 ") {
			t.Errorf("%s has %q, %v", found[0], text, err)
		}
		filtered, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(found[0])), "filtered_stdout.log"))
		if err != nil || !strings.HasSuffix(string(filtered), string(text)) {
			t.Errorf("the file of all ranks has %q, %v", filtered, err)
		}
	}
	v, err := w.dir.Verdict(1)
	if err != nil || !strings.Contains(v.Message, filepath.Join("attempt_0", "0", "stdout.log")) {
		t.Errorf("verdict is %+v, %v", v, err)
	}
	if !strings.Contains(w.out.String(), "<1> 1 2 1 2 0 0 ") {
		t.Errorf("the console has %q", w.out.String())
	}
}

// Without --log-dir, the file of the filtered output is in the run directory.
func TestFilteredOutputIsInTheRunDirectory(t *testing.T) {
	w := newWorld(t, []int{2}, "say", "yes\nno\n")
	w.agents[0].Output.OutFilters = []string{"yes"}
	w.agree(w.run())
	text, err := os.ReadFile(filepath.Join(w.dir.LogsPath(1), "n1.filtered.out"))
	if err != nil || strings.Count(string(text), "yes\n") != 2 || strings.Contains(string(text), "no") {
		t.Errorf("it has %q, %v", text, err)
	}
}

// The IDs of two users without accounts.
const (
	victim   = 4242
	attacker = 4243
)

// If another user takes the agent's private folder, the run warns once and goes on, with the workers' output as their sign of life.
func TestRunWhosePrivateFolderIsTaken(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	kept := filepath.Join(t.TempDir(), "kept")
	must(t, os.WriteFile(kept, []byte("mine"), 0o600))
	must(t, os.Chtimes(kept, time.Unix(1000, 0), time.Unix(1000, 0)))
	// The script runs as root, so it removes only folders with the prefix of agents' folders, whatever the variable says. It repeats that,
	// because the agent may make its folder anew before the other user does.
	name := privatePath
	w := hanging(t, 5*time.Second, speak+`folder=${DDPBATCH_HEARTBEAT_FILE%/*/*}; echo $folder
case $folder in `+name+`[0-9]*) ;; *) exit 9; esac
until setpriv --reuid 4243 --regid 4243 --clear-groups mkdir -m 777 $folder 2>/dev/null; do rm -rf $folder; done
ln -s `+kept+` $folder/0.heartbeat
touch "$DDPBATCH_HEARTBEAT_FILE" 2>/dev/null && echo touched
speak 80`)
	v := w.agree(w.run())
	out := w.logOf("n1", 0, "out")
	folder, _, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(folder, name) {
		t.Fatalf("the worker said %q", out)
	}
	defer os.RemoveAll(folder)
	if v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	if n := strings.Count(w.log.String(), "another user or program has made one with its name"); n != 1 {
		t.Errorf("it warned %d times: %s", n, w.log.String())
	}
	if strings.Contains(out, "touched") {
		t.Errorf("the worker said %q", out)
	}
	if info, err := os.Stat(kept); err != nil || info.ModTime().Unix() != 1000 {
		t.Errorf("the user's file: %v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(folder, "0.heartbeat")); err != nil {
		t.Errorf("what the other user has made is gone: %v", err)
	}
}

// An agent that cannot write its stop file for a long time still reports at once how its workers ended. Otherwise agent 0 would count its
// node as lost.
func TestReportDoesNotWaitForTheStopFile(t *testing.T) {
	t.Parallel() // most of it is a pause
	w := newWorld(t, []int{1, 1}, "wait", "75")
	warn := make(chan struct{})
	held := heldLog{what: "stop file cannot be made", came: make(chan struct{}), goOn: make(chan struct{})}
	w.agents[1].Warn, w.agents[1].Log = warn, slog.New(held)
	own, attempt := newRunDir(t)
	w.agents[1].RunDir = own
	first, other := w.begin(t.Context(), 0), w.begin(t.Context(), 1)
	w.awaitMarks("0", "1")
	must(t, os.RemoveAll(filepath.Dir(own.StopPath(attempt)))) // the stop file cannot be made now, and held delays that
	close(warn)
	<-held.came
	var results []result
	select {
	case r := <-first:
		results = append(results, r)
	case <-time.After(testkit.Patience): // less than answerLimit
		t.Error("agent 0 waits for agent 1's stop file")
	}
	close(held.goOn)
	if len(results) == 0 {
		results = append(results, <-first)
	}
	if v := w.agree(append(results, <-other)); v.Cause != "stopped" || v.Exit != 75 || !v.Saved {
		t.Errorf("verdict is %+v", v)
	}
}

// heldLog is a log that closes came when a line contains what. The writer of that line then waits for goOn.
type heldLog struct {
	what       string
	came, goOn chan struct{}
}

func (h heldLog) Enabled(context.Context, slog.Level) bool { return true }

func (h heldLog) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h heldLog) WithGroup(string) slog.Handler { return h }

func (h heldLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.what) {
		close(h.came)
		<-h.goOn
	}
	return nil
}
