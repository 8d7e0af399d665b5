package main

import (
	"path/filepath"
	"testing"
)

// A job of 2 to 4 nodes gets all four. After a warning it saves, and continues on the two nodes that another job has left.
func testSlurmNodeRange(t *testing.T, c *cluster) {
	const command = `touch "world.${SLURM_RESTART_COUNT:-0}.$RANK.of.$WORLD_SIZE"
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
until [ -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.1; done
touch saved; exit 75`
	worlds := func(pattern string, ranks int) func() bool {
		return func() bool {
			found, err := filepath.Glob(filepath.Join(c.dir, pattern))
			return err == nil && len(found) == ranks
		}
	}
	c.commandJob("range", `nodes = "2-4"`, "2", "bash", "-c", command)
	s := c.submit("range.toml", "--set", `requeue.lead="60s"`)
	eventually(t, commandLimit, "two ranks on each of four nodes", worlds("world.0.*.of.8", 8))
	c.ok("sbatch", "-N2", "--exclusive", "-t5", "-o", "/dev/null", "--wrap", "until [ -e released ]; do sleep 0.2; done")
	c.ok("scontrol", "update", "jobid="+s.id, "EndTime=now+50")
	s.goneOn("timeout")
	if !worlds("world.1.*.of.4", 4)() || !worlds("world.1.*", 4)() {
		found, _ := filepath.Glob(filepath.Join(c.dir, "world.*"))
		t.Errorf("the ranks that ran: %q; want the second start on two nodes", found)
	}
	c.write("released", "")
}
