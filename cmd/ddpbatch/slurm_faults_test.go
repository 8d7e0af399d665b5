package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// killRows kill and stop processes of jobs on n1 to n4 of a cluster of 21 nodes. Few of them run at once: a slurmd (22.05.8) that launched
// nine jobs in the same second has crashed (SIGSEGV in malloc), and took all of them along.
var killRows = []row{
	{"StepdKilled", testSlurmStepdKilled}, // takes longest
	{"WorkerKilled", testSlurmWorkerKilled},
	{"WorkerStopped", testSlurmWorkerStopped},
	{"AgentStopped", testSlurmAgentStopped},
	{"Agent0Stopped", testSlurmAgent0Stopped},
	{"Restarted", testSlurmRestarted},
}

// faultRows harm nodes of that cluster while jobs run on them: they kill their daemons, cut cables and turn off the power. Each has nodes
// of its own.
var faultRows = []row{
	{"SlurmdKilled", testSlurmSlurmdKilled},
	{"CableCut", testSlurmCableCut},
	{"CableOfAgent0Cut", testSlurmCableOfAgent0Cut},
	{"Zombies", testSlurmZombies},
	{"PowerOfBatchHost", testSlurmPowerOfBatchHost},
	{"FewerNodes", testSlurmFewerNodes},
	{"NotSharedLate", testSlurmNotSharedLate},
}

// harm does something to nodes, by a verb of scripts/slurm-cluster.
func (c *cluster) harm(verb string, nodes ...string) {
	c.t.Helper()
	c.ok(c.script, append([]string{verb}, nodes...)...)
}

// family is a worker with all the relatives that outlive a careless supervisor: in sessions of their own, with parents that have
// ended, deaf to TERM, with an environment that says nothing of the run. $0 is a word that only their command lines hold.
const family = `
` + stranger + `
setsid sh -c "trap '' TERM HUP INT; sleep 1000.$0; sleep 1000.$0" &
(setsid sh -c "trap '' TERM; exec sleep 1000.$0" &)
touch "running.$TORCHELASTIC_RESTART_COUNT.$RANK"
exec sleep 1000.$0`

// stranger is a relative that says nothing of the run: Slurm's cgroup ends it where nobody else can.
const stranger = `(env -i setsid sh -c "trap '' TERM; sleep 1000.$0" &)`

// familyOfAKilledAgent is a family for a test that kills the agent. Without cgroups it has no stranger: nobody could find it then.
func (c *cluster) familyOfAKilledAgent() string {
	c.t.Helper()
	if c.hasCgroups() {
		return family
	}
	c.t.Log("without the relative that clears its environment: Slurm finds it by cgroups, which this cluster lacks")
	return strings.Replace(family, stranger, "", 1)
}

// word is a name for this test's processes that no other process has.
func (c *cluster) word() string {
	return strings.ReplaceAll(fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano()), "-", "")
}

// familyJob starts families, and waits until all ranks run. It may not be requeued.
func (c *cluster) familyJob(name, slurmLines string, nproc, ranks int, script string, args ...string) (*submitted, string) {
	c.t.Helper()
	word := c.word()
	c.commandJob(name, slurmLines, fmt.Sprint(nproc), "sh", "-c", script, word)
	s := c.submit(append([]string{name + ".toml", "--set", `launch.grace="3s"`}, args...)...)
	s.ranksStarted(1, ranks)
	return s, word
}

// ranksStarted waits until the ranks of an attempt run.
func (s *submitted) ranksStarted(attempt, ranks int) {
	s.c.t.Helper()
	eventually(s.c.t, commandLimit, fmt.Sprintf("the %d ranks of attempt %d run", ranks, attempt), func() bool {
		found, err := filepath.Glob(filepath.Join(s.c.dir, fmt.Sprintf("running.%d.*", attempt-1)))
		return err == nil && len(found) == ranks
	})
}
