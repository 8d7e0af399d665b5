package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// watchedJob is a job that uses all features that an agent runs in the background.
const watchedJob = `
name = "watched"
[slurm]
nodes = 2
[launch]
command = ["sh", "-c", """
echo 1 >"$DDPBATCH_HEARTBEAT_FILE"
[ "$RANK" != 0 ] || echo '{"step": 1, "samples_per_s": 5}' >>"$DDPBATCH_METRICS_FILE"
echo a line of output
echo $PPID >agent-of.$RANK.tmp && mv agent-of.$RANK.tmp agent-of.$RANK
exec sleep 1000"""]
nproc_per_node = 2
check = ["true"]
hang = "30m"
max_restarts = 3
metrics_dir = %q
metrics_listen = 0
on_end = ["true"]
`

// TestAgentNeedsLittleMemory measures an agent's own memory, as on a node of 32 cores. It does not count the pages of the program's file:
// all processes of a node share them, and how many are mapped depends on the page cache.
func TestAgentNeedsLittleMemory(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, err := buildinfo.ReadFile(program); err != nil || slices.Contains(info.Settings, race) {
		t.Skipf("the program has the race detector, which needs memory of its own (%v)", err)
	}
	dir := t.TempDir()
	check(os.WriteFile(filepath.Join(dir, "job.toml"), fmt.Appendf(nil, watchedJob, dir), 0o600))
	simulate, _ := command(dir, "simulate", "job.toml")
	said, err := os.Create(filepath.Join(dir, "said"))
	check(err)
	defer said.Close()
	simulate.Stdout, simulate.Stderr, simulate.Env = said, said, append(os.Environ(), "GOMAXPROCS=32")
	check(simulate.Start())
	defer func() {
		check(simulate.Process.Signal(syscall.SIGINT))
		_ = simulate.Wait() // it ends with 130
	}()

	agents := map[int]bool{}
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`)
	var metrics string
	testkit.Eventually(t, "all workers are up, and the metrics are shown", func() bool {
		for rank := range 4 {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("agent-of.", rank)))
			if err != nil {
				return false
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			check(err)
			agents[pid] = true
		}
		text, err := os.ReadFile(said.Name())
		check(err)
		metrics = string(address.Find(text))
		files, err := filepath.Glob(filepath.Join(dir, "ddpbatch-*.prom"))
		return err == nil && len(files) == 1 && metrics != ""
	})
	answer, err := http.Get(metrics)
	check(err)
	_, err = io.Copy(io.Discard, answer.Body)
	check(err)
	answer.Body.Close()
	if len(agents) != 2 {
		t.Fatalf("agents %v, want two", agents)
	}
	for pid := range agents {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		check(err)
		_, rest, _ := strings.Cut(string(status), "\nRssAnon:")
		var own int
		if _, err := fmt.Sscanf(rest, "%d kB", &own); err != nil || own <= 0 || own >= 12<<10 {
			t.Errorf("an agent has %d kB of its own, want less than 12 MiB (%v)\n%s", own, err, status)
		}
	}
}
