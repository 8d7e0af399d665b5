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

// An agent is stopped, and the run continues without it in the same job, and completes. srun waits for all of its tasks; the job must end
// even though that one does not. Slurm kills the agent if it is slow to end.
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
	t.Cleanup(func() { _ = syscall.Kill(stopped, syscall.SIGCONT) }) // the next tests need the node
	s.verdictComes(2)
	if v := s.verdict(2); v.Cause != "done" {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	over := s.verdict(2).Time // not when this process noticed it, which may be much later
	if job := s.await(); job["JobState"] != "COMPLETED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	took := time.Since(over)
	t.Logf("the job was over %v after the run", took.Round(time.Second))
	if took < 50*time.Second { // attempt watch ends srun one minute after the final verdict
		t.Errorf("the job ended %v after the run: nothing kept srun, so that this tested nothing", took)
	}
	if log, err := os.ReadFile(filepath.Join(s.dir.Path(), "slurm-"+s.id+".log")); err != nil ||
		!strings.Contains(string(log), "telling srun to end its step") {
		t.Errorf("the job's log does not tell who ended the step: %v\n%s", err, log)
	}
	eventually(t, testkit.Patience, "no agent is left", func() bool { return !slices.ContainsFunc(s.kin(word), kin.isAgent) })
}
