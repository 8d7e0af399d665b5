package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

const final = "requeue.on=[]" // any failure ends the job

// One worker of a job on four nodes is killed. Within two seconds no workers are left, nor any processes that they have started.
func testSlurmWorkerKilled(t *testing.T, c *cluster) {
	const promised = 2 * time.Second
	testkit.Promptly(t, promised, func() time.Duration { return killOneOfEight(t, c) })
}

// killOneOfEight returns how long the other workers outlived the killed one.
func killOneOfEight(t *testing.T, c *cluster) time.Duration {
	t.Helper()
	s, word := c.familyJob("worker", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, family, "--set", final)
	began := c.signalled(syscall.SIGKILL, s.worker(5).pid)
	took := s.workersGone(word, began)
	if job := s.await(); job["JobState"] != "FAILED" || job["ExitCode"] != "137:0" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	s.blames(1, "crash", "n3", 5, 137)
	v := s.verdict(1)
	if v.Signal != 9 || !strings.Contains(v.Report, "rank 5 on n3 was killed by SIGKILL") || len(v.Ranks) != 8 {
		t.Errorf("verdict: %+v", v)
	}
	for i, end := range v.Ranks {
		if end.Followed != (i > 0) {
			t.Errorf("of rank %d it is said that it followed another: %v", end.Rank, end.Followed)
		}
	}
	s.nobodyLeft(word)
	c.clear()
	return took
}

// An agent is killed, and no workers are left, nor any processes that they have started.
func testSlurmAgentKilledOfMany(t *testing.T, c *cluster) {
	relatives := c.familyOfAKilledAgent()
	for _, row := range []struct{ node, mode string }{{"n3", "agent"}, {"n1", "agent"}, {"n3", "task"}} { // n1 has agent 0
		// an agent that waited for a missing heartbeat would take longer
		testkit.Promptly(t, 10*time.Second, func() time.Duration {
			s, word := c.familyJob("agent", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, relatives,
				"--set", final, "--set", `launch.mode="`+row.mode+`"`)
			began := c.signalled(syscall.SIGKILL, s.agent(row.node).pid)
			took := s.workersGone(word, began)
			if job := s.await(); job["JobState"] != "FAILED" {
				t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
			}
			s.blames(1, "node", row.node, -1, 1, row.node)
			s.nobodyLeft(word)
			c.clear()
			return took
		})
	}
}

// A rank is killed, and all ranks of all nodes start again in the job: in the same places, with another port.
func testSlurmRestarted(t *testing.T, c *cluster) {
	const twice = sayPlace + ` >"place.$TORCHELASTIC_RESTART_COUNT.$RANK"
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
`
	s, word := c.familyJob("again", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, twice+family, "--set", final, "--set",
		"launch.max_restarts=1")
	began := c.signalled(syscall.SIGKILL, s.worker(3).pid)
	if job := s.await(); job["JobState"] != "COMPLETED" || job["Restarts"] != "0" {
		t.Errorf("Slurm says: %s, exit code %s, %s restarts", job["JobState"], job["ExitCode"], job["Restarts"])
	}
	s.workersGone(word, began)
	var rounds [2][]seen
	for round := range rounds {
		var out strings.Builder
		for rank := range 8 {
			text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("place.%d.%d", round, rank)))
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
		}
		rounds[round] = readPlaces(t, out.String())
		c.checkPlaces(rounds[round], 8)
	}
	if rounds[0][0].port == rounds[1][0].port {
		t.Errorf("both rounds have MASTER_PORT %d, which what is left of the first may hold", rounds[0][0].port)
	}
	s.blames(1, "crash", "n2", 3, 137)
	if v := s.verdict(1); !v.Restart {
		t.Errorf("the verdict of attempt 1 does not mention the restart: %+v", v)
	}
	if v := s.verdict(2); v.Cause != "done" || v.Round != 1 {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	s.nobodyLeft(word)
}

// clear removes the files that the ranks of a job have written, before the next job.
func (c *cluster) clear() {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.dir, "running.*"))
	for _, path := range found {
		err = os.Remove(path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Without srun, Slurm ends the step, and no process can report why.
func testSlurmSrunKilled(t *testing.T, c *cluster) {
	c.needsCgroups()
	s, word := c.familyJob("srun", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, family, "--set", final)
	began := time.Now()
	if s.endSrun() == 0 {
		t.Error("there is no srun")
	}
	s.workersGone(word, began)
	code := "137:0"
	job := s.await()
	if s.event("end").Cause == "node" { // agent 0 outlived another agent by a moment, took its node for lost, and had time to report it
		code = "1:0"
	}
	if job["JobState"] != "FAILED" || job["ExitCode"] != code {
		t.Errorf("Slurm says: %s, exit code %s; want %s", job["JobState"], job["ExitCode"], code)
	}
	if e := s.event("give-up"); e.Attempt != 1 || e.Detail == "" {
		t.Errorf("ledger: %q, its last word %+v", s.events(), e)
	}
	s.nobodyLeft(word)
}

// Slurm does not notice that a node's step daemon is gone. The workers there continue, and end with the others.
func testSlurmStepdKilled(t *testing.T, c *cluster) {
	testkit.Promptly(t, 10*time.Second, func() time.Duration {
		s, word := c.familyJob("stepd", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, family, "--set", final)
		c.signalled(syscall.SIGKILL, s.agent("n3").parent)
		began := c.signalled(syscall.SIGKILL, s.worker(0).pid)
		took := s.workersGone(word, began)
		s.blames(1, "crash", "n1", 0, 137)
		// srun waits for a message from n3 until its own limit
		eventually(t, testkit.Patience, "no agent is left", func() bool { return !slices.ContainsFunc(s.kin(word), kin.isAgent) })
		if job := s.await(); job["JobState"] != "FAILED" || job["ExitCode"] != "137:0" {
			t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
		}
		s.nobodyLeft(word)
		c.clear()
		return took
	})
}

// Slurm kills a step at once: its agents, and its workers, which keep starting processes.
func testSlurmTreeKilled(t *testing.T, c *cluster) {
	c.needsCgroups()
	const busy = `
for n in $(seq 300); do setsid sh -c "trap '' TERM; sleep 1000.$0; sleep 1000.$0" & sleep 0.01; [ $n != 50 ] || touch "running.0.$RANK"; done
wait`
	for range 2 {
		s, word := c.familyJob("tree", "nodes = 1", 2, 2, busy, "--set", final)
		c.ok("scancel", "--signal=KILL", s.id+".0")
		s.await()
		s.nobodyLeft(word)
		c.clear()
	}
}

// A worker that is stopped hangs, and all others wait for it. The verdict names it, and all of them are ended.
func testSlurmWorkerStopped(t *testing.T, c *cluster) {
	// they print steps until it stops: if they were idle from the start, all would count as hung before the test stops one
	stepping := strings.Replace(family, "exec sleep", "while ! [ -e stopped ]; do echo step; sleep 0.1; done\nexec sleep", 1)
	s, word := c.familyJob("stopped", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, stepping, "--set", final, "--set", `launch.hang="8s"`)
	began := c.signalled(syscall.SIGSTOP, s.worker(5).pid)
	c.write("stopped", "")
	s.workersGone(word, began)
	if job := s.await(); job["JobState"] != "FAILED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	s.blames(1, "hang", "n3", 5, 1, "n3")
	if v := s.verdict(1); !strings.Contains(v.Message, "SIGSTOP") {
		t.Errorf("verdict: %+v", v)
	}
	s.nobodyLeft(word)
}

// An agent that is stopped is lost, like one that is gone. Slurm resumes it in order to end it.
func testSlurmAgentStopped(t *testing.T, c *cluster) {
	s, word := c.familyJob("agent", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, family, "--set", final)
	began := c.signalled(syscall.SIGSTOP, s.agent("n3").pid)
	s.workersGone(word, began)
	if job := s.await(); job["JobState"] != "FAILED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	s.blames(1, "node", "n3", -1, 1, "n3")
	s.nobodyLeft(word)
}

// The others give up agent 0. Slurm resumes it in order to end it, and it must not blame them.
func testSlurmAgent0Stopped(t *testing.T, c *cluster) {
	s, word := c.familyJob("agent0", "nodes = 4\nnodelist = \"n[1-4]\"", 2, 8, family, "--set", final)
	began := c.signalled(syscall.SIGSTOP, s.agent("n1").pid)
	s.workersGone(word, began)
	if job := s.await(); job["JobState"] != "FAILED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	s.blames(1, "node", "n1", -1, 1, "n1")
	s.nobodyLeft(word)
}
