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

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
)

// once is a family in the first attempt. In any later attempt it exits with 0 at once.
const once = `[ "$TORCHELASTIC_RESTART_COUNT" -gt 0 ] && { echo "again on $(hostname)"; exit 0; }` + family

// The daemon of a node is gone, and its tasks live. After a while Slurm takes the node for dead; ddpbatch learns of it only from Slurm.
func testSlurmSlurmdKilled(t *testing.T, c *cluster) {
	s, word := c.familyJob("slurmd", "nodes = 2\nnodelist = \"n[5-6]\"", 2, 4, family, "--set", final)
	c.ok(c.script, "exec", "n6", "pkill", "-KILL", "-x", "slurmd")
	began := time.Now()
	s.workersGone(word, began)
	// Slurm itself requeues the job, although the run must not be requeued. The job is canceled again.
	if job := s.await(); job["JobState"] != "CANCELLED" || job["Restarts"] != "1" {
		t.Errorf("Slurm says: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	if e := s.event(rundir.EventGiveUp); e.Attempt != 1 || e.Cause != "node" || slices.Contains(s.events(), rundir.EventRequeue) {
		t.Errorf("ledger: %q, its last word %+v", s.events(), e)
	}
	if row := s.status(); row.Attempt != 1 || row.Cause != "node" {
		t.Errorf("status --json: %+v", row)
	}
	v := s.verdict(1)
	if v.Cause != "node" || v.Host != "n6" || !slices.Equal(v.Nodes, []string{"n6"}) {
		t.Errorf("verdict: %+v", v)
	}
	s.nobodyLeft(word)
}

// A node is cut off. The job stops and continues without it, and the workers on that node do not stay.
func testSlurmCableCut(t *testing.T, c *cluster) {
	s, word := c.familyJob("cut", "nodes = 2\nexclude = \"n[1-6,9-18,20-21]\"", 2, 4, once)
	c.harm("cut", "n8")
	t.Cleanup(func() { c.harm("heal", "n8") })
	began := time.Now()
	// ten seconds without a message, and five for the workers of the node that is cut off
	s.workersGone(word, began)
	job := s.await()
	s.blames(1, "node", "n8", -1, 1, "n8")
	if job["JobState"] != "COMPLETED" || job["Restarts"] != "1" || job["NodeList"] != "n[7,19]" {
		t.Errorf("Slurm says: %s on %s, %s restarts", job["JobState"], job["NodeList"], job["Restarts"])
	}
	if v := s.verdict(2); v.Cause != "done" {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	s.nobodyLeft(word)
}

// Agent 0 no longer receives messages, while the others still receive each other's. It must not blame them, since they would be excluded
// from the rest of the job. Its batch script lives on beside the attempt that Slurm starts elsewhere.
func testSlurmCableOfAgent0Cut(t *testing.T, c *cluster) {
	s, word := c.familyJob("cut0", "nodes = 3\nexclude = \"n[1-8,12-18,20-21]\"", 1, 3, once)
	c.harm("cut", "n9")
	began := time.Now()
	s.workersGone(word, began)
	s.verdictComes(1)
	eventually(t, testkit.Patience, "no agent is left", func() bool { return !slices.ContainsFunc(s.kin(word), kin.isAgent) })
	s.blames(1, "node", "n9", -1, 1, "n9")
	job := s.await()
	if job["JobState"] != "COMPLETED" || job["NodeList"] != "n[10-11,19]" {
		t.Errorf("Slurm says: %s on %s", job["JobState"], job["NodeList"])
	}
	if v := s.verdict(2); v.Cause != "done" {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	// Only Slurm's processes are left on n9, since Slurm does not end them on a node that is down: the batch script and srun. When srun
	// ends, the script must change nothing: the run belongs to another attempt.
	before := s.events()
	s.endSrun()
	s.nobodyLeft(word)
	if v := s.verdict(2); v.Cause != "done" || !slices.Equal(s.events(), before) {
		t.Errorf("what was left of attempt 1 has had a say; verdict of attempt 2: %+v, ledger: %q, and before %q", v, s.events(), before)
	}
}

// endSrun kills the processes of srun, and returns how many there were.
func (s *submitted) endSrun() (n int) {
	s.c.t.Helper()
	for _, k := range s.kin("") {
		if k.args[0] == "srun" {
			n++
			_ = syscall.Kill(k.pid, syscall.SIGKILL) // srun's two processes end together, so the second may be gone
		}
	}
	return n
}

// zombieJob saves often. Its first attempt must last for a second on two ranks. Its second attempt, which is stopped meanwhile, must end
// within commandLimit on a busy machine: a step takes from 0.7 to 12 ms.
const (
	zombieEpochs = 100
	zombieJob    = `schema = 1
name = "zombies"
[slurm]
nodes = 2
exclude = "n[1-11,14-18,20-21]"
time = "00:05:00"
[train]
epochs = %d
batch_size = 32
loss = "mse"
model = { kind = "mlp", hidden = [32], activation = "tanh" }
data = { kind = "generated", shuffle = true }
optimizer = { kind = "sgd", lr = 0.01, momentum = 0.9 }
[checkpoint]
every_steps = 50
`
)

// The node of rank 0, which commits checkpoints, is frozen and cut off, and the run continues elsewhere. Then everything that ran on the
// node resumes. The run belongs to another attempt by then, so it must neither commit nor remove anything.
func testSlurmZombies(t *testing.T, c *cluster) {
	c.write("job.toml", fmt.Sprintf(zombieJob, zombieEpochs))
	s := c.submit("job.toml")
	const steps = zombieEpochs * 64 // 4096 rows / (32 x 2 ranks)
	rank0 := func(k kin) bool { return k.get("RANK") == "0" }
	var all []kin
	var i int
	eventually(t, commandLimit, "rank 0 runs", func() bool {
		all = s.kin("")
		i = slices.IndexFunc(all, func(k kin) bool { return rank0(k) && slices.Contains(k.args, "train") })
		return i >= 0
	})
	eventually(t, commandLimit, "the job has saved", func() bool { return s.step() >= 150 })
	c.signalled(syscall.SIGSTOP, all[i].pid) // at once: all ranks wait for it, so that attempt 1 does not end before its node is frozen
	all = s.kin("")
	if i = slices.IndexFunc(all, rank0); i < 0 {
		t.Fatal("rank 0 does not run")
	}
	node := all[i].get("SLURMD_NODENAME") // the job's script runs there, too
	var frozen []kin
	for _, k := range all {
		if k.get("SLURMD_NODENAME") == node {
			frozen = append(frozen, k)
		}
	}
	for _, k := range frozen {
		c.signalled(syscall.SIGSTOP, k.pid)
	}
	t.Cleanup(func() {
		for _, k := range frozen {
			_ = syscall.Kill(k.pid, syscall.SIGCONT) // most have ended by then
		}
	})
	c.harm("cut", node)
	t.Cleanup(func() { c.harm("heal", node) })
	before := s.step()
	lap := func(what string, since time.Time) time.Time {
		t.Logf("%s after %v", what, time.Since(since).Round(time.Millisecond))
		return time.Now()
	}
	since := time.Now()
	c.ok("scontrol", "update", "nodename="+node, "state=down", "reason=cut off") // Slurm itself takes 20 s to notice it
	eventually(t, commandLimit, "attempt 2 has come further than attempt 1", func() bool {
		last, _, err := s.dir.LastMetrics()
		return err == nil && last.Attempt == 2 && last.Step > before+100
	})
	since = lap("attempt 2 is ahead", since)
	ofAttempt1 := func(k kin) bool { return slices.ContainsFunc(frozen, func(f kin) bool { return f.pid == k.pid }) }
	all = s.kin("")
	i = slices.IndexFunc(all, func(k kin) bool { return rank0(k) && !ofAttempt1(k) })
	if i < 0 {
		t.Fatal("the job was over before its first attempt could wake up; make it longer")
	}
	held := all[i].pid // all ranks wait for it, so that attempt 2 does not end before the zombies do
	c.signalled(syscall.SIGSTOP, held)
	t.Cleanup(func() { _ = syscall.Kill(held, syscall.SIGCONT) }) // an error means that it has ended
	for _, k := range frozen {
		_ = syscall.Kill(k.pid, syscall.SIGCONT) // one that already continues may have ended it
	}
	eventually(t, testkit.Patience, "no agent and no worker of attempt 1 is left", func() bool {
		return !slices.ContainsFunc(s.kin(""), func(k kin) bool { return ofAttempt1(k) && (k.isAgent() || k.isWorker("")) })
	})
	since = lap("the zombies are gone", since)
	c.signalled(syscall.SIGCONT, held)
	if job := s.await(); job["JobState"] != "COMPLETED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	lap("the job is over", since)
	s.endSrun()
	s.nobodyLeft("")
	if v := s.verdict(2); v.Cause != "done" || v.Step != steps {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	s.oneLineage(2)
	if e := s.event(rundir.EventBegin); e.Attempt != 2 {
		t.Errorf("the newest attempt is %d, want 2; ledger: %q", e.Attempt, s.events())
	}
}

// oneLineage checks that all checkpoints verify, and that the newest is of the given attempt.
func (s *submitted) oneLineage(attempt int) {
	t := s.c.t
	t.Helper()
	s.c.ok("ddpbatch", "ckpt", "verify", s.id)
	infos := decode[[]checkpoint.Info](t, []byte(s.c.ok("ddpbatch", "ckpt", "ls", "--json", s.id).stdout))
	for i, info := range infos {
		if info.State != "committed" || info.Attempt > attempt || i == len(infos)-1 && info.Attempt != attempt ||
			i > 0 && info.Attempt < infos[i-1].Attempt {
			t.Errorf("checkpoints: %+v", infos)
		}
	}
	if parts, err := filepath.Glob(filepath.Join(s.dir.CheckpointsPath(), ".*")); err != nil || len(infos) == 0 {
		t.Errorf("%d checkpoints, parts of others %q (%v)", len(infos), parts, err)
	}
}

// The node of the batch script and of agent 0 is gone. Slurm itself starts the job again, which counts as a lost node.
func testSlurmPowerOfBatchHost(t *testing.T, c *cluster) {
	s, word := c.familyJob("power", "nodes = 2\nexclude = \"n[1-13,16-18,20-21]\"", 2, 4, once)
	c.harm("crash", "n14")
	began := time.Now()
	s.workersGone(word, began)
	s.verdictComes(1)
	s.blames(1, "node", "n14", -1, 1, "n14")
	job := s.await()
	if job["JobState"] != "COMPLETED" || job["NodeList"] != "n[15,19]" {
		t.Errorf("Slurm says: %s on %s", job["JobState"], job["NodeList"])
	}
	if v := s.verdict(2); v.Cause != "done" {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	s.nobodyLeft(word)
}

// With min_nodes, the run continues in the same job without a node that has lost its power, and its ranks are renumbered.
func testSlurmFewerNodes(t *testing.T, c *cluster) {
	const again = `if [ "$TORCHELASTIC_RESTART_COUNT" != 0 ]; then
	` + sayPlace + ` >"place.$RANK"
	exit 0
fi`
	s, word := c.familyJob("fewer", "nodes = 3\nnodelist = \"n[16-18]\"", 2, 6, again+family, "--set", "launch.min_nodes=2", "--set",
		"launch.max_restarts=1")
	c.harm("crash", "n17")
	began := time.Now()
	eventually(t, commandLimit, "four ranks run again", func() bool {
		found, err := filepath.Glob(filepath.Join(c.dir, "place.*"))
		return err == nil && len(found) == 4
	})
	t.Logf("four ranks ran again %v after the power failed", time.Since(began).Round(time.Millisecond))
	var out strings.Builder
	for rank := range 4 {
		text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("place.%d", rank)))
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	for rank, seen := range readPlaces(t, out.String()) {
		if want := []string{"n16", "n18"}[rank/2]; seen.rank != rank || seen.host != want || seen.world != 4 ||
			seen.nodes != 2 || seen.node != rank/2 ||
			seen.localRank != rank%2 || seen.localWorld != 2 || seen.master != "n16" && c.nodeAt(seen.master) != "n16" {
			t.Errorf("rank %d is told %+v; it runs on %s, with 4 ranks on 2 nodes", rank, seen, want)
		}
	}
	s.workersGone(word, began)
	s.verdictComes(2)
	s.blames(1, "node", "n17", -1, 1, "n17")
	if v := s.verdict(2); v.Cause != "done" || v.Exit != 0 {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	if job := s.await(); job["JobState"] != "COMPLETED" || job["Restarts"] != "0" {
		t.Errorf("Slurm says: %s, exit code %s, %s restarts", job["JobState"], job["ExitCode"], job["Restarts"])
	}
	s.nobodyLeft(word)
}
