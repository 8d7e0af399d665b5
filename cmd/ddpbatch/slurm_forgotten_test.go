package main

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/runview"
)

// accountedRows run on the site with accounting, one at a time.
var accountedRows = append(usualRows[:len(usualRows):len(usualRows)], row{"Forgotten", testSlurmForgotten})

// After the controller has forgotten jobs, which only accounting still knows, the program reports the same about them as before. The row is
// the last on its site: Slurm 22.05 may reuse the numbers of earlier jobs.
func testSlurmForgotten(t *testing.T, c *cluster) {
	c.commandJob("good", "nodes = 1", "1", "true")
	c.commandJob("failed", "nodes = 1", "1", "sh", "-c", "exit 7")
	c.commandJob("killed", "nodes = 1", "1", "sh", "-c", "touch running; exec sleep 1000")
	c.commandJob("array", "nodes = 1\narray = \"0-2\"", "1", "sh", "-c", `exit $SLURM_ARRAY_TASK_ID`)
	all := []*submitted{
		c.submit("failed.toml"), c.submit("killed.toml"), c.submit("good.toml", "--", "--hold"),
		c.submit("good.toml", "--", "--begin=now+2"), c.submit("array.toml"),
	}
	failed, killed, held := all[0], all[1], all[2]
	eventually(t, commandLimit, "the job to be killed runs", func() bool {
		_, err := os.Stat(c.dir + "/running")
		return err == nil
	})
	c.ok("scancel", "--full", "--signal=KILL", killed.id)
	c.ok("ddpbatch", "cancel", held.id)
	eventually(t, commandLimit, "all jobs are over", func() bool { return len(c.jobs()) == 0 })
	var ids []string
	for _, s := range all {
		ids = append(ids, s.id)
	}
	eventually(t, commandLimit, "accounting has the ends of four jobs and three elements", func() bool { // it receives them with a delay
		ends := c.ok("sacct", "-n", "-X", "-P", "-o", "End", "-j", strings.Join(ids, ",")).stdout
		return strings.Count(ends, "\n") == 7 && !strings.Contains(ends, "Unknown")
	})

	says := func() (rows []runview.RunStatus) {
		for _, s := range all {
			rows = append(rows, s.status())
		}
		return rows
	}
	before := says()
	conf, err := os.ReadFile(c.conf())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.conf(), bytes.Replace(conf, []byte("MinJobAge=600"), []byte("MinJobAge=2"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ok("scontrol", "reconfigure")
	eventually(t, 2*commandLimit, "the controller has forgotten them", func() bool { return len(c.jobs("-t", "all")) == 0 })
	for i, after := range says() {
		before[i].Reason = "" // accounting has no reasons
		if !reflect.DeepEqual(after, before[i]) {
			t.Errorf("status --json said\n%+v\nand of the forgotten job\n%+v", before[i], after)
		}
	}
	out := c.exits(exit.Usage, "ddpbatch", "cancel", failed.id)
	if want := "job " + failed.id + " has ended already: FAILED (rank 0 on "; !strings.Contains(out.stderr, want) {
		t.Errorf("cancel of the job that has failed: want %q, got %v", want, out)
	}
	c.exits(7, "ddpbatch", "logs", "-f", failed.id)
}
