package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// testSlurmLostAgentLives: an agent is stopped, and the run goes on without it, in the job, to its end. srun waits for all of its tasks,
// and must not wait for that one: the job ends all the same. Slurm kills the agent if it is slow to end.
func testSlurmLostAgentLives(t *testing.T, c *cluster) {
	const once = `[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
`
	s, word := c.familyJob("lost", "nodes = 2", 1, 2, once+c.familyOfAKilledAgent(),
		"--set", final, "--set", "launch.min_nodes=1", "--set", "launch.max_restarts=1")
	stopped := 0
	for _, k := range s.kin("") {
		if k.isAgent() && k.get("SLURM_NODEID") == "1" {
			stopped = k.pid
		}
	}
	if stopped == 0 {
		t.Fatal("there is no agent on the second node")
	}
	c.signalled(syscall.SIGSTOP, stopped)
	t.Cleanup(func() { _ = syscall.Kill(stopped, syscall.SIGCONT) }) // the next tests want the node
	s.verdictComes(2)
	if v := s.verdict(2); v.Cause != "done" {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	over := s.verdict(2).Time // and not when this process has seen it, which may be much later
	if job := s.await(); job["JobState"] != "COMPLETED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	took := time.Since(over)
	t.Logf("the job was over %v after the run", took.Round(time.Second))
	if took < 50*time.Second { // attempt watch ends srun a minute after the last word
		t.Errorf("the job ended %v after the run: nothing kept srun, so that this tested nothing", took)
	}
	if log, err := os.ReadFile(filepath.Join(s.dir.Path(), "slurm-"+s.id+".log")); err != nil ||
		!strings.Contains(string(log), "telling srun to end its step") {
		t.Errorf("the job's log does not tell who ended the step: %v\n%s", err, log)
	}
	eventually(t, testkit.Patience, "no agent is left", func() bool { return !slices.ContainsFunc(s.kin(word), kin.isAgent) })
}
