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

// watchedJob is one with all that an agent can do at the side.
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

// TestAgentNeedsLittleMemory: an agent whose workers run has never been above 20 MB, as on a node of 32 cores.
func TestAgentNeedsLittleMemory(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if info, err := buildinfo.ReadFile(program); err != nil || slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
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
	testkit.Eventually(t, "all workers are up", func() bool {
		for rank := range 4 {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("agent-of.", rank)))
			if err != nil {
				return false
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			check(err)
			agents[pid] = true
		}
		files, err := filepath.Glob(filepath.Join(dir, "ddpbatch-*.prom"))
		return err == nil && len(files) == 1
	})
	text, err := os.ReadFile(said.Name())
	check(err)
	at := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).Find(text)
	answer, err := http.Get(string(at))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	check(err)
	answer.Body.Close()
	if len(agents) != 2 {
		t.Fatalf("agents %v, want two", agents)
	}
	for pid := range agents {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		check(err)
		_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
		var highest int
		if _, err := fmt.Sscanf(rest, "%d kB", &highest); err != nil || highest <= 0 || highest*1024 >= 20e6 {
			t.Errorf("an agent had %d kB of memory, want less than 20 MB (%v)\n%s", highest, err, status)
		}
	}
}
