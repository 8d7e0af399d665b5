package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// The components of a heterogeneous job are one world. It fails as a whole and is resumed, continues after a warning, and one cancel ends
// all of it.
func testSlurmHetJob(t *testing.T, c *cluster) {
	const components = `cpus_per_task = 2
[[slurm.component]]
nodes = 2
partition = "low"
nproc_per_node = 2`
	const command = `echo "$WORLD_SIZE $GROUP_RANK $LOCAL_RANK $LOCAL_WORLD_SIZE" >"place.$RANK"
if [ "$(cat wish)" = fail ] && [ "$RANK" = 4 ]; then
  until [ "$(cat place.* | wc -l)" = 5 ]; do sleep 0.05; done # its end stops the others
  exit 7
fi
[ "$(cat wish)" = wait ] || exit 0
touch "running.$RANK"
until [ -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.1; done
[ "$RANK" != 0 ] || { echo done >wish; touch saved; }
exit 75`
	c.commandJob("het", components, "1", "bash", "-c", command)
	wish := func(what string) { c.write("wish", what) }
	ranks := func() {
		t.Helper()
		for rank, want := range []string{"5 0 0 1", "5 1 0 2", "5 1 1 2", "5 2 0 2", "5 2 1 2"} {
			text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprint("place.", rank)))
			if got := strings.TrimSpace(string(text)); err != nil || got != want {
				t.Errorf("rank %d is %q, %v; want %q", rank, got, err, want)
			}
		}
	}
	parts := func(s *submitted, state string) {
		t.Helper()
		all := c.jobs("-t", "all", "-j", s.id)
		if len(all) != 2 {
			t.Errorf("job %s has the components %q, want 2", s.id, all)
		}
		for _, part := range all {
			if !strings.HasPrefix(strings.Join(part, " "), s.id+"+") || !strings.Contains(strings.Join(part, " "), state) {
				t.Errorf("a component of job %s: %q, want %s", s.id, part, state)
			}
		}
	}

	wish("fail")
	out := c.exits(7, "ddpbatch", "submit", "het.toml", "--parsable", "--wait")
	s := c.find(strings.TrimSpace(out.stdout))
	ranks()
	if v := s.verdict(1); v.Cause != "crash" || v.FirstRank != 4 || s.status().State != "FAILED" {
		t.Errorf("the verdict is %+v, the state %s", v, s.status().State)
	}
	parts(s, "FAILED")
	wish("done")
	c.ok("ddpbatch", "resume", s.id, "--wait")
	if row := s.status(); row.State != "COMPLETED" || row.Attempt != 2 {
		t.Errorf("after the resume: %+v", row)
	}

	wish("wait")
	s = c.submit("het.toml", "--set", `requeue.lead="60s"`, "--set", "launch.mode=task")
	ranksRun(c, 5)
	c.ok("scontrol", "update", "jobid="+s.id, "EndTime=now+50")
	s.goneOn("timeout")
	ranks()

	for rank := range 5 {
		if err := os.Remove(filepath.Join(c.dir, fmt.Sprint("running.", rank))); err != nil {
			t.Error(err)
		}
	}
	wish("wait")
	s = c.submit("het.toml")
	ranksRun(c, 5)
	c.ok("ddpbatch", "cancel", s.id)
	if job := s.await(); job["JobState"] != "CANCELLED" || s.event(rundir.EventRequeue).Event != "" {
		t.Errorf("Slurm says %s; the ledger has %q", job["JobState"], s.events())
	}
	parts(s, "CANCELLED")
}
