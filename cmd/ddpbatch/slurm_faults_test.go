package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// killRows kill and stop processes of jobs on n1 to n4 of a cluster of 21 nodes. Few of them run at once: a slurmd (22.05.8) that launched
// nine jobs in the same second crashed (SIGSEGV in malloc), and all of them ended with it.
var killRows = []row{
	{"StepdKilled", testSlurmStepdKilled}, // takes longest
	{"WorkerKilled", testSlurmWorkerKilled},
	{"WorkerStopped", testSlurmWorkerStopped},
	{"AgentStopped", testSlurmAgentStopped},
	{"Agent0Stopped", testSlurmAgent0Stopped},
	{"Restarted", testSlurmRestarted},
}

// faultRows harm nodes of that cluster while jobs run on them: they kill daemons, cut cables and turn off the power. Each row has its own
// nodes.
var faultRows = []row{
	{"SlurmdKilled", testSlurmSlurmdKilled},
	{"CableCut", testSlurmCableCut},
	{"CableOfAgent0Cut", testSlurmCableOfAgent0Cut},
	{"Zombies", testSlurmZombies},
	{"PowerOfBatchHost", testSlurmPowerOfBatchHost},
	{"FewerNodes", testSlurmFewerNodes},
	{"NotSharedLate", testSlurmNotSharedLate},
}

// harm applies a command of scripts/slurm-cluster to nodes.
func (c *cluster) harm(verb string, nodes ...string) {
	c.t.Helper()
	c.ok(c.script, append([]string{verb}, nodes...)...)
}

// family is a worker that starts processes which would outlive a careless supervisor: in their own sessions, with parents that have ended,
// ignoring TERM, or with an environment that does not name the run. $0 is a word that occurs only on their command lines.
const family = `
` + stranger + `
setsid sh -c "trap '' TERM HUP INT; sleep 1000.$0; sleep 1000.$0" &
(setsid sh -c "trap '' TERM; exec sleep 1000.$0" &)
touch "running.$TORCHELASTIC_RESTART_COUNT.$RANK"
exec sleep 1000.$0`

// stranger is such a process whose environment does not name the run. Only Slurm's cgroup can end it, if the agent cannot.
const stranger = `(env -i setsid sh -c "trap '' TERM; sleep 1000.$0" &)`

// familyOfAKilledAgent returns a family for a test that kills the agent. Without cgroups it has no stranger, since nothing could find it
// then.
func (c *cluster) familyOfAKilledAgent() string {
	c.t.Helper()
	if c.hasCgroups() {
		return family
	}
	c.t.Log("without the relative that clears its environment: Slurm finds it by cgroups, which this cluster lacks")
	return strings.Replace(family, stranger, "", 1)
}

// word returns a word for this test's processes that no other process has.
func (c *cluster) word() string {
	return strings.ReplaceAll(fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano()), "-", "")
}

// familyJob starts a job of families, and waits until all ranks run.
func (c *cluster) familyJob(name, slurmLines string, nproc, ranks int, script string, args ...string) (*submitted, string) {
	c.t.Helper()
	word := c.word()
	c.commandJob(name, slurmLines, fmt.Sprint(nproc), "sh", "-c", script, word)
	s := c.submit(append([]string{name + ".toml", "--set", `launch.grace="3s"`}, args...)...)
	s.ranksStarted(1, ranks)
	return s, word
}

// ranksStarted waits until the given number of ranks of an attempt run.
func (s *submitted) ranksStarted(attempt, ranks int) {
	s.c.t.Helper()
	eventually(s.c.t, commandLimit, fmt.Sprintf("the %d ranks of attempt %d run", ranks, attempt), func() bool {
		found, err := filepath.Glob(filepath.Join(s.c.dir, fmt.Sprintf("running.%d.*", attempt-1)))
		return err == nil && len(found) == ranks
	})
}
