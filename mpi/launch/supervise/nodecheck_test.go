package supervise

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"
)

// checking returns the configuration of an agent that checks its node, and the agent's log.
func checking(t *testing.T, checks ...[]string) (Config, *bytes.Buffer) {
	log := new(bytes.Buffer)
	c := Config{
		World:   rendezvous.World{Host: "n%2", Nproc: 1},
		Workers: Workers{Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin", "DDPBATCH_SECRET=hidden", "KEPT=kept"}},
		Log:     slog.New(slog.NewTextHandler(log, nil)),
	}
	c.Checks = checks
	return c, log
}

func shell(line string) []string { return []string{"sh", "-c", line} }

func TestCheckNode(t *testing.T) {
	for name, tt := range map[string]struct {
		checks [][]string
		cause  string // "": nothing is wrong
		exit   int
		says   string
	}{
		"none": {},
		"good": {checks: [][]string{{"true"}, shell("echo fine")}},
		"bad": {checks: [][]string{{"true"}, shell("echo a; echo 'no link' >&2; echo; exit 7")}, cause: "node", exit: 1,
			says: "n%2 failed a check: sh -c echo a; echo 'no link' >&2; echo; exit 7 (launch.check) ended with exit code 7: no link"},
		"bad and silent": {checks: [][]string{{"false"}}, cause: "node", exit: 1,
			says: "n%2 failed a check: false (launch.check) ended with exit code 1"},
		"the second is bad": {checks: [][]string{shell("echo first"), {"false"}}, cause: "node", exit: 1,
			says: "n%2 failed a check: false (launch.check) ended with exit code 1"},
		"killed": {checks: [][]string{shell("kill -SEGV $$")}, cause: "node", exit: 1,
			says: "n%2 failed a check: sh -c kill -SEGV $$ (launch.check) was killed by SIGSEGV"},
		"not there": {checks: [][]string{{"no-such-check"}}, cause: "start", exit: 127,
			says: `launch.check: no-such-check cannot be started: command "no-such-check" is not in the workers' PATH`},
		"no program": {checks: [][]string{{"/etc/passwd"}}, cause: "start", exit: 126,
			says: `launch.check: /etc/passwd cannot be started: command "/etc/passwd" is not executable (chmod +x ` +
				`/etc/passwd): permission denied`},
		"of a terminal": {checks: [][]string{shell(`printf 'red: \033[31m\n'; exit 1`)}, cause: "node", exit: 1,
			says: `ended with exit code 1: red:  [31m`},
		"with a secret": {checks: [][]string{shell(`echo "$KEPT${DDPBATCH_SECRET-none}"; exit 1`)}, cause: "node", exit: 1,
			says: "ended with exit code 1: keptnone"},
		"standard input":    {checks: [][]string{shell(`cat; exit 1`)}, cause: "node", exit: 1, says: "ended with exit code 1"},
		"where workers run": {checks: [][]string{shell(`[ -e here ] || exit 1`)}},
		"more than is shown": {checks: [][]string{shell(`yes | head -c 9000000 | tr -d '\n'; exit 1`)}, cause: "node", exit: 1,
			says: "bytes ... yyyy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, log := checking(t, tt.checks...)
			if err := os.WriteFile(filepath.Join(c.Dir, "here"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			err := c.CheckNode(t.Context())
			if tt.cause == "" {
				if err != nil || log.Len() > 0 {
					t.Errorf("%v, %s", err, log)
				}
				return
			}
			r, ok := err.(*rendezvous.Rejection)
			if !ok || r.Cause != tt.cause || r.Exit != tt.exit || !strings.Contains(r.Message, tt.says) || len(r.Message) > 1000 {
				t.Fatalf("%+v, want %+v", r, tt)
			}
			if want := map[string][]string{"node": {"n%2"}, "start": nil}[tt.cause]; !reflect.DeepEqual(r.Unfit, want) {
				t.Errorf("it blames %q, want %q", r.Unfit, want)
			}
		})
	}
}

// A check that hangs is killed with all its children, without waiting for processes that hold its output open.
func TestCheckNodeHangs(t *testing.T) {
	c, _ := checking(t, shell("echo begun; sleep 1000 & sleep 1000"))
	c.CheckLimit = 300 * time.Millisecond
	begun := time.Now()
	err := c.CheckNode(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(),
		"(launch.check) was killed, because it had not ended 300ms after the first check began: "+
			"begun") {
		t.Error(err)
	}
	if took := time.Since(begun); took > testkit.Patience {
		t.Errorf("it took %v", took)
	}
}

// If a run is stopped while a check runs, it ends for that reason, and not because of the check.
func TestCheckNodeIsInterrupted(t *testing.T) {
	c, _ := checking(t, shell("echo >begun; sleep 1000"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.CheckNode(ctx) }()
	testkit.Eventually(t, "the check runs", func() bool { _, err := os.Stat(filepath.Join(c.Dir, "begun")); return err == nil })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Only one task of a node runs the checks.
func TestCheckNodeOfTasks(t *testing.T) {
	c, _ := checking(t, []string{"false"})
	c.Local = []rendezvous.RankNumbers{{Rank: 3, LocalRank: 1, LocalWorldSize: 2}}
	if err := c.CheckNode(t.Context()); err != nil {
		t.Error(err)
	}
	c.Local[0].LocalRank = 0
	if err := c.CheckNode(t.Context()); err == nil {
		t.Error("the first task does not look")
	}
}

// A problem that does not keep programs from running is only a warning.
func TestCheckNodeWarns(t *testing.T) {
	c, log := checking(t)
	c.Machine, c.Env = true, append(c.Env, "TMPDIR=/no-such-folder")
	if err := c.CheckNode(t.Context()); err != nil || !strings.Contains(log.String(), "cannot create a file in /no-such-folder") {
		t.Errorf("%v, %s", err, log)
	}
}
