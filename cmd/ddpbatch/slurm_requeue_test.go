package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// saver is a rank that "saves" when it has to stop, because of the stop file or TERM, and exits with 75. The next time it exits with 0 at
// once.
const saver = `save() { touch "saved.$1"; exit 75; }
id=${SLURM_ARRAY_TASK_ID:-0}
[ -e "saved.$id" ] && exit 0
trap 'save "$id"' TERM
touch "running.$id.$RANK"
until [ -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.1; done
save "$id"`

// ranksRun waits until n ranks of savers run.
func ranksRun(c *cluster, n int) {
	c.t.Helper()
	eventually(c.t, commandLimit, "all ranks run", func() bool {
		found, err := filepath.Glob(filepath.Join(c.dir, "running.*"))
		return err == nil && len(found) == n
	})
}

// event returns the last event of the given name in the ledger.
func (s *submitted) event(name string) (found rundir.Event) {
	s.c.t.Helper()
	events, err := s.dir.Ledger()
	if err != nil {
		s.c.t.Fatal(err)
	}
	for _, e := range events {
		if e.Event == name {
			found = e
		}
	}
	return found
}

// goneOn checks a job that had to save because of the given cause, to be requeued once, and to complete.
func (s *submitted) goneOn(cause string) { s.goneOnBy(cause, cause) }

// goneOnBy checks the same as goneOn for a requeue that counts against the budget of another cause.
func (s *submitted) goneOnBy(cause, budget string) {
	t := s.c.t
	t.Helper()
	restarts := "1"
	if cause == "preempt" && s.c.release() >= "24.05" {
		restarts = "2" // it remembers the preemption, and starts the job once more after it has ended; the run is done by then
	}
	job := s.await()
	if job["JobState"] != "COMPLETED" || job["Restarts"] != restarts {
		t.Errorf("Slurm says: %s, %s restarts; want %s", job["JobState"], job["Restarts"], restarts)
	}
	if v := s.verdict(1); v.Cause != cause || v.Exit != exit.Requeue || !v.Requeue {
		t.Errorf("verdict of attempt 1: %+v, want the cause %s", v, cause)
	}
	if v := s.verdict(2); v.Cause != "done" {
		t.Errorf("verdict of attempt 2: %+v", v)
	}
	if e := s.event(rundir.EventRequeue); e.Cause != budget || e.Attempt != 1 {
		t.Errorf("the ledger says of the requeue: %+v, want the cause %s", e, budget)
	}
	if row := s.status(); row.Requeues != 1 || row.Cause != "done" || row.Attempt != 2 {
		t.Errorf("status --json: %+v", row)
	}
	log, err := os.ReadFile(s.dir.SlurmLogPath(strings.ReplaceAll(s.id, "/", "_")))
	if err != nil || !strings.Contains(string(log), "requeued: ") {
		t.Errorf("the job's log does not say that it is requeued (%v):\n%s", err, log)
	}
}

// Near the time limit, the script gets a warning, the workers save, and the job continues without a user.
func testSlurmRequeueWarned(t *testing.T, c *cluster) {
	c.commandJob("warned", "nodes = 2", "2", "bash", "-c", saver)
	s := c.submit("warned.toml", "--set", `requeue.lead="60s"`)
	ranksRun(c, 4)
	c.ok("scontrol", "update", "jobid="+s.id, "EndTime=now+50")
	eventually(t, commandLimit, "the stop file", func() bool {
		_, err := os.Stat(s.dir.StopPath(1))
		return err == nil
	})
	s.goneOn("timeout")
}

// Slurm signals a job up to a minute before its warning is due. Its workers are stopped no sooner than necessary, also if the time limit
// was moved while the job ran.
func testSlurmWarnedWhenDue(t *testing.T, c *cluster) {
	const lead, late = 10, 6 // seconds; late allows for polling, notifying the workers, and Slurm's whole seconds
	var jobs []*submitted
	for _, name := range []string{"minute", "moved"} {
		c.commandJob(name, "nodes = 1", "1", "bash", "-c",
			`touch running.`+name+`.0; until [ -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.1; done; date +%s >stopped.`+name+`; exit 75`)
		jobs = append(jobs, c.submit(name+".toml", "--set", "slurm.time=1", "--set", "requeue.max.timeout=0"))
	}
	ranksRun(c, 2)
	c.ok("scontrol", "update", "jobid="+jobs[1].id, "EndTime=now+40")
	var ends []time.Time // while the jobs run; later Slurm reports when they have ended
	for _, job := range jobs {
		end, err := time.ParseInLocation("2006-01-02T15:04:05", c.job(job.id)["EndTime"], time.Local)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	for i, name := range []string{"minute", "moved"} {
		if job := jobs[i].await(); job["ExitCode"] != "93:0" {
			t.Errorf("%s: Slurm says: %s, exit code %s", name, job["JobState"], job["ExitCode"])
		}
		stopped, err := os.ReadFile(filepath.Join(c.dir, "stopped."+name))
		if err != nil {
			t.Fatal(err)
		}
		at, err := strconv.ParseInt(strings.TrimSpace(string(stopped)), 10, 64)
		if before := ends[i].Unix() - at; err != nil || before < lead-late || before > lead+1 {
			t.Errorf("%s was stopped %d s before its end (%v), want %d", name, before, err, lead)
		} else {
			t.Logf("%s was stopped %d s before its end", name, before)
		}
		if v := jobs[i].verdict(1); v.Cause != "timeout" || !v.Saved || v.LeadS != lead {
			t.Errorf("%s: the verdict is %+v", name, v)
		}
	}
}

// endNow sets a running job's end to this second. Slurm does not accept a time in the past, so endNow tries again if a second ends between
// scontrol's look at the clock and slurmctld's.
func (c *cluster) endNow(id string) {
	c.t.Helper()
	eventually(c.t, commandLimit, "the job's end is now", func() bool {
		out := c.run("scontrol", "update", "jobid="+id, "EndTime=now")
		if out.code != 0 && !strings.Contains(out.stderr, "Invalid time specified") {
			c.t.Fatalf("scontrol update: exit code %d: %s", out.code, out.stderr)
		}
		return out.code == 0
	})
}

// Without a warning, the time limit itself is the warning: Slurm sends TERM, and leaves some seconds.
func testSlurmRequeueTimeLimit(t *testing.T, c *cluster) {
	c.commandJob("limit", "nodes = 2", "1", "bash", "-c", saver)
	s := c.submit("limit.toml", "--set", `slurm.skip=["signal"]`)
	ranksRun(c, 2)
	c.endNow(s.id)
	s.goneOn("timeout")
}

// Workers that do not exit at TERM are killed while there is still time to decide, before Slurm kills everything.
func testSlurmRequeueStubborn(t *testing.T, c *cluster) {
	c.commandJob("stubborn", "nodes = 2", "1", "bash", "-c",
		`[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0; trap '' TERM; touch "running.0.$RANK"; while :; do sleep 0.1; done`)
	s := c.submit("stubborn.toml", "--set", `slurm.skip=["signal"]`)
	ranksRun(c, 2)
	c.endNow(s.id)
	if job := s.await(); job["JobState"] != "COMPLETED" || job["Restarts"] != "1" {
		t.Errorf("Slurm says: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	if v := s.verdict(1); v.Cause != "timeout" || !v.Requeue {
		t.Errorf("verdict of attempt 1: %+v", v)
	}
	if e := s.event(rundir.EventRequeue); e.Cause != "timeout" {
		t.Errorf("the ledger says of the requeue: %+v", e)
	}
}

// If a preempted job exits in time, Slurm does not requeue it. ddpbatch does.
func testSlurmRequeuePreempted(t *testing.T, c *cluster) {
	if !strings.Contains(c.ok("sinfo", "-h", "-o", "%P").stdout, "low") {
		t.Skip("this cluster has no partition that jobs are preempted in: scripts/slurm-cluster down, and up again")
	}
	c.commandJob("preempted", "nodes = 2\nexclusive = true\npartition = \"low\"", "1", "bash", "-c", saver)
	s := c.submit("preempted.toml")
	ranksRun(c, 2)
	nodes := c.job(s.id)["NodeList"]
	c.ok("sbatch", "--partition=main", "--exclusive", "--nodelist="+nodes, "--nodes=2", "--output=/dev/null", "--wrap=true")
	s.goneOn("preempt")
}

// Slurm 24.05 and later start a preempted job once more. That start does not run the job again if it has been given up since.
func testSlurmPreemptedGivenUp(t *testing.T, c *cluster) {
	if !strings.Contains(c.ok("sinfo", "-h", "-o", "%P").stdout, "low") {
		t.Skip("this cluster has no partition that jobs are preempted in: scripts/slurm-cluster down, and up again")
	}
	c.commandJob("given-up", "nodes = 2\nexclusive = true\npartition = \"low\"", "1", "bash", "-c",
		`[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || exit 93; `+saver)
	s := c.submit("given-up.toml")
	ranksRun(c, 2)
	nodes := c.job(s.id)["NodeList"]
	c.ok("sbatch", "--partition=main", "--exclusive", "--nodelist="+nodes, "--nodes=2", "--output=/dev/null", "--wrap=true")
	if job := s.await(); job["JobState"] != "FAILED" || job["ExitCode"] != "93:0" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	if n, err := s.dir.NewestAttempt(); err != nil || n != 2 {
		t.Errorf("%d attempts, %v; want 2", n, err)
	}
}

// A job that a user cancels stays canceled, even if its workers saved and ask for another attempt.
func testSlurmCancelIsFinal(t *testing.T, c *cluster) {
	c.commandJob("cancelled", "nodes = 2", "1", "bash", "-c", saver)
	s := c.submit("cancelled.toml")
	ranksRun(c, 2)
	c.ok("scancel", s.id)
	if job := s.await(); job["JobState"] != "CANCELLED" || job["Restarts"] != "0" {
		t.Errorf("Slurm says: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	eventually(t, commandLimit, "the ledger's last word", func() bool { return slices.Contains(s.events(), rundir.EventGiveUp) })
	if v := s.verdict(1); v.Cause != "cancelled" {
		t.Errorf("verdict: %+v", v)
	}
	if slices.Contains(s.events(), rundir.EventRequeue) {
		t.Errorf("ledger: %q", s.events())
	}
	c.ok("ddpbatch", "resume", s.id, "--wait")
}

// If one element of an array asks for a requeue, only that element is requeued.
func testSlurmRequeueElement(t *testing.T, c *cluster) {
	c.commandJob("array", "nodes = 1\narray = \"0-1\"", "1", "bash", "-c",
		`[ "$SLURM_ARRAY_TASK_ID" = 0 ] || [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exit 75`)
	id := strings.TrimSpace(c.ok("ddpbatch", "submit", "array.toml", "--parsable").stdout)
	var elements [2]*submitted
	for i, name := range []string{id + "_0", id + "_1"} {
		eventually(t, commandLimit, "element "+name+" has begun", func() bool {
			dir, err := rundir.Find(filepath.Join(c.dir, "runs"), name)
			if err != nil {
				return false
			}
			elements[i] = &submitted{c, name, dir}
			newest, err := dir.NewestAttempt()
			return err == nil && newest > 0
		})
	}
	elements[1].goneOn("stopped")
	if job := elements[0].await(); job["JobState"] != "COMPLETED" || job["Restarts"] != "0" {
		t.Errorf("Slurm says of the element that did not ask: %s, %s restarts", job["JobState"], job["Restarts"])
	}
}

// If an agent is lost, its node is blamed, and the job continues on other nodes.
func testSlurmRequeueNode(t *testing.T, c *cluster) {
	c.commandJob("node", "nodes = 2", "1", "bash", "-c",
		`[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0; touch "running.0.$RANK"; exec sleep 1000`)
	s := c.submit("node.toml")
	ranksRun(c, 2)
	node := strings.TrimSpace(c.ok("scontrol", "show", "hostnames", c.job(s.id)["NodeList"]).stdout)
	node = node[strings.LastIndexByte(node, '\n')+1:]
	pids := strings.Fields(c.onNode(node, "pgrep", "-f", "--", s.dir.Binary()+" run").stdout)
	if len(pids) != 1 {
		t.Fatalf("agents on %s: %q", node, pids)
	}
	c.ok(c.script, "exec", node, "kill", "-KILL", pids[0])
	job := s.await()
	if job["JobState"] != "COMPLETED" || job["ExcNodeList"] != node || strings.Contains(job["NodeList"], node) {
		t.Errorf("Slurm says: %s on %s, not on %s; want not on %s", job["JobState"], job["NodeList"], job["ExcNodeList"], node)
	}
	if e := s.event(rundir.EventRequeue); e.Cause != "node" || !slices.Equal(e.Nodes, []string{node}) {
		t.Errorf("the ledger says of the requeue: %+v", e)
	}
	s.gone()
}

// If a node of a job is drained, its workers save, and the job continues on other nodes. A job whose requeue.on does not permit that keeps
// running.
func testSlurmRequeueDrained(t *testing.T, c *cluster) {
	c.commandJob("drained", "nodes = 2", "1", "bash", "-c", saver)
	s := c.submit("drained.toml")
	ranksRun(c, 2)
	nodes := c.job(s.id)["NodeList"]
	c.commandJob("stays", "nodes = 1\nexclude = \""+nodes+"\"", "1", "bash", "-c",
		strings.Replace(saver, "running.$id", "running.stays", 1))
	stays := c.submit("stays.toml", "--set", `requeue.on=["timeout"]`)
	ranksRun(c, 3)
	node := strings.Fields(c.ok("scontrol", "show", "hostnames", nodes).stdout)[1] // not the one of the first rank
	both := node + "," + c.job(stays.id)["NodeList"]
	t.Cleanup(func() { c.ok("scontrol", "update", "NodeName="+both, "State=RESUME") })
	c.ok("scontrol", "update", "NodeName="+both, "State=DRAIN", "Reason=the fan is loud")
	s.goneOnBy("node", "stopped")
	job := c.job(s.id)
	if job["ExcNodeList"] != node || strings.Contains(job["NodeList"], node) {
		t.Errorf("Slurm says: it ran on %s, not on %s; want not on %s", job["NodeList"], job["ExcNodeList"], node)
	}
	if v := s.verdict(1); !v.Drain || !v.Saved || !slices.Equal(v.Nodes, []string{node}) ||
		!strings.HasPrefix(v.Message, "Slurm drains "+node+" (the fan is loud)") {
		t.Errorf("verdict of attempt 1: %+v", v)
	}
	if e := s.event(rundir.EventRequeue); !slices.Equal(e.Nodes, []string{node}) {
		t.Errorf("the ledger says of the requeue: %+v", e)
	}
	job = c.job(stays.id)
	eventually(t, commandLimit, "the other job's log says that its node is drained", func() bool {
		log, err := os.ReadFile(stays.dir.SlurmLogPath(stays.id))
		return err == nil && strings.Contains(string(log), "Slurm drains "+job["NodeList"]+" (the fan is loud), and the job goes on there")
	})
	if job["JobState"] != "RUNNING" {
		t.Errorf("the job that is to stay: %s", job["JobState"])
	}
}

// Slurm does not requeue a job that was submitted with no_requeue, and ddpbatch reports that.
func testSlurmRequeueRefused(t *testing.T, c *cluster) {
	c.commandJob("refused", "nodes = 1\nno_requeue = true", "1", "sh", "-c", "exit 75")
	out := c.exits(exit.Requeue, "ddpbatch", "submit", "refused.toml", "--wait", "--parsable")
	s := c.find(strings.TrimSpace(out.stdout))
	if e := s.event(rundir.EventRefused); e.Cause != "stopped" || !strings.Contains(e.Detail, "disabled") {
		t.Errorf("the ledger says: %+v", e)
	}
	log, err := os.ReadFile(s.dir.SlurmLogPath(s.id))
	if err != nil || !strings.Contains(string(log), "no-requeue") || !strings.Contains(string(log), "ddpbatch resume") {
		t.Errorf("the job's log (%v):\n%s", err, log)
	}
}

// 93 ends the run for good, and so does an attempt without progress.
func testSlurmForbidden(t *testing.T, c *cluster) {
	for _, row := range []struct{ code, says string }{
		{"93", "forbids another attempt"},
		{"75", "no progress"}, // the job must not end with a code that asks for another attempt
	} {
		c.commandJob("ends", "nodes = 1", "1", "sh", "-c", "exit "+row.code)
		s := c.submit("ends.toml", "--set", "requeue.no_progress=1")
		if job := s.await(); job["JobState"] != "FAILED" || job["ExitCode"] != "93:0" || job["Restarts"] != "0" {
			t.Errorf("Slurm says: %s, exit code %s, %s restarts", job["JobState"], job["ExitCode"], job["Restarts"])
		}
		if e := s.event(rundir.EventGiveUp); !strings.Contains(e.Detail, row.says) {
			t.Errorf("the ledger says: %+v, want %q", e, row.says)
		}
		if row := s.status(); row.State != "FAILED" || row.Next == "" {
			t.Errorf("status --json: %+v", row)
		}
	}
}
