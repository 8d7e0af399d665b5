package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSlurmFaults takes a cluster apart while jobs run on it: processes are killed and stopped, cables are cut and the power fails. The
// cluster is one of its own beside that of TestSlurm, so that it harms nobody, and large enough for most of the tests to run at once: they
// wait for Slurm most of the time. Each has nodes of its own where it harms nodes.
func TestSlurmFaults(t *testing.T) {
	script := clusterScript(t)
	startOwnCluster(t, script, "faults", map[string]string{
		"CGROUPS": "", "NODES": "21", "CPUS": "16", "GPUS": "0", "NET": "10.78.1", "PORT": "17617"})
	runAtOnce(t, script, 1, []clusterTest{{"WorkerKilled", testSlurmWorkerKilled}}) // it is timed
	tests := []clusterTest{
		// on n1 to n4
		{"WorkerStopped", testSlurmWorkerStopped},
		{"AgentStopped", testSlurmAgentStopped},
		{"Agent0Stopped", testSlurmAgent0Stopped},
		{"AgentKilledOfMany", testSlurmAgentKilledOfMany},
		{"Restarted", testSlurmRestarted},
		{"SrunKilled", testSlurmSrunKilled},
		{"StepdKilled", testSlurmStepdKilled},
		{"TreeKilled", testSlurmTreeKilled},
		// each on nodes that nobody else is on
		{"SlurmdKilled", testSlurmSlurmdKilled},
		{"CableCut", testSlurmCableCut},
		{"CableOfAgent0Cut", testSlurmCableOfAgent0Cut},
		{"Zombies", testSlurmZombies},
		{"PowerOfBatchHost", testSlurmPowerOfBatchHost},
		{"FewerNodes", testSlurmFewerNodes},
		{"NotSharedLate", testSlurmNotSharedLate},
	}
	runAtOnce(t, script, len(tests), tests)
}

// startOwnCluster brings up a cluster of the test's own, with settings of scripts/slurm-cluster, that is down again after the test. It has
// one place for its name, so that what a test that was killed left there is cleared away by the next.
func startOwnCluster(t *testing.T, script, name string, settings map[string]string) {
	dir := filepath.Join(os.TempDir(), "ddpbatch-"+name)
	lock, err := os.Open(os.TempDir()) // a lock that leaves no file
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	eventually(t, 5*time.Minute, "nobody else uses "+dir, func() bool {
		return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
	t.Setenv("SLURM_CLUSTER_DIR", dir)
	for name, value := range settings {
		t.Setenv("SLURM_CLUSTER_"+name, value)
	}
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
	down := func() {
		if out, err := exec.Command(script, "down").CombinedOutput(); err != nil {
			t.Errorf("slurm-cluster down: %v\n%s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	down()
	t.Cleanup(down)
	if out, err := exec.Command(script, "up").CombinedOutput(); err != nil {
		t.Fatalf("slurm-cluster up: %v\n%s", err, out)
	}
}

// harm does something to nodes, by a verb of scripts/slurm-cluster.
func (c *cluster) harm(verb string, nodes ...string) {
	c.t.Helper()
	c.ok(c.script, append([]string{verb}, nodes...)...)
}

// family is a worker with all the relatives that outlive a careless supervisor: in sessions of their own, with parents that have
// ended, deaf to TERM, with an environment that says nothing of the run. $0 is a word that only their command lines hold.
const family = `
(env -i setsid sh -c "trap '' TERM; sleep 1000.$0" &)
setsid sh -c "trap '' TERM HUP INT; sleep 1000.$0; sleep 1000.$0" &
(setsid sh -c "trap '' TERM; exec sleep 1000.$0" &)
touch "running.$TORCHELASTIC_RESTART_COUNT.$RANK"
exec sleep 1000.$0`

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
