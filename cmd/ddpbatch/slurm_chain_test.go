package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// links returns the jobs of a run's chain.
func (s *submitted) links(n int) (links []*submitted) {
	s.c.t.Helper()
	known, err := s.dir.Submissions()
	if err != nil || len(known.Chain) != n || known.Links != n {
		s.c.t.Fatalf("the chain is %q of %d, %v; want %d links", known.Chain, known.Links, err, n)
	}
	for _, id := range known.Chain {
		links = append(links, s.c.find(id))
	}
	return links
}

// neverRan waits until the jobs of links have ended, and checks that they were canceled before they began.
func neverRan(t *testing.T, links []*submitted) {
	t.Helper()
	for _, link := range links {
		if job := link.await(); job["JobState"] != "CANCELLED" || job["RunTime"] != "00:00:00" {
			t.Errorf("job %s: %s, and ran for %s; want it cancelled before it began", link.id, job["JobState"], job["RunTime"])
		}
	}
}

// The time limit ends a link. The next link continues in the same run directory, completes the run and cancels the links after it, and no
// other jobs.
func testSlurmChain(t *testing.T, c *cluster) {
	c.commandJob("chain", "nodes = 2\nchain = 4", "1", "bash", "-c", saver)
	c.commandJob("after", "nodes = 1", "1", "true")
	s := c.submit("chain.toml", "--set", `slurm.skip=["signal"]`)
	links := s.links(4)
	ok := c.submit("after.toml", "--after", s.dir.Path()+":ok")
	notOK := c.submit("after.toml", "--after", links[3].id+":notok")
	ranksRun(c, 2)
	c.endNow(s.id)
	out := c.ok("ddpbatch", "logs", "-f", links[2].id)
	for _, want := range []string{
		fmt.Sprintf("ddpbatch: link 1 of 4 ends: the time limit came, and the workers saved; link 2 goes on (job %s)\n", links[1].id),
		fmt.Sprintf("ddpbatch: link 2 of 4: the run is done, so that the links after it are cancelled: jobs %s, %s\n",
			links[2].id, links[3].id),
	} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("the log does not say %q: %v", want, out)
		}
	}
	first, second := links[0].await(), links[1].await()
	if first["JobState"] != "TIMEOUT" || first["Restarts"] != "0" || second["JobState"] != "COMPLETED" ||
		second["StartTime"] < first["EndTime"] {
		t.Errorf("Slurm says: %s until %s, %s restarts; then %s from %s", first["JobState"], first["EndTime"], first["Restarts"],
			second["JobState"], second["StartTime"])
	}
	neverRan(t, links[2:])
	if job := ok.await(); job["JobState"] != "COMPLETED" {
		t.Errorf("the job that waits for the run to be done: %v", job)
	}
	if job := c.job(notOK.id); job["JobState"] != "PENDING" {
		t.Errorf("the job that waits for the run to fail: %v", job)
	}
	if e := s.event(rundir.EventLinkEnd); e.Attempt != 1 || e.Cause != "timeout" || slices.Contains(s.events(), rundir.EventRequeue) {
		t.Errorf("the ledger has %q, and says of the link's end: %+v", s.events(), e)
	}
	if row := s.status(); row.Job != links[1].id || row.State != "COMPLETED" || row.Link != 2 || row.Links != 4 || row.Attempt != 2 {
		t.Errorf("status --json: %+v", row)
	}
}

// A user ends the whole chain with the id of any link, or with scancel of the running link. The run is resumed as a chain.
func testSlurmChainCancelled(t *testing.T, c *cluster) {
	c.commandJob("cancelled", "nodes = 2\nchain = 3", "1", "bash", "-c", saver)
	s := c.submit("cancelled.toml")
	links := s.links(3)
	ranksRun(c, 2)
	if out := c.exits(exit.Usage, "ddpbatch", "resume", s.id); !strings.Contains(out.stderr, "links of its chain have not ended (") ||
		!strings.Contains(out.stderr, links[2].id+" PENDING") {
		t.Errorf("resume of a chain that goes on: %v", out)
	}
	if out := c.ok("ddpbatch", "cancel", links[1].id); strings.Count(out.stdout, "cancelled job ") != 3 {
		t.Errorf("cancel: %v", out)
	}
	if job := links[0].await(); job["JobState"] != "CANCELLED" || job["Restarts"] != "0" {
		t.Errorf("the link that ran: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	neverRan(t, links[1:])

	c.ok("ddpbatch", "resume", s.dir.Path(), "--set", "slurm.chain=2", "--", "--hold")
	if row := s.status(); row.State != "PENDING" || row.Link != 1 || row.Links != 2 {
		t.Errorf("status --json after the resume: %+v", row)
	}
	c.ok("ddpbatch", "cancel", s.dir.Path())
	neverRan(t, s.links(2))

	c.commandJob("by-hand", "nodes = 2\nchain = 3", "1", "bash", "-c",
		`trap 'exit 1' TERM; touch "running.by-hand.$RANK"; sleep 1000 & wait`)
	links = c.submit("by-hand.toml").links(3)
	ranksRun(c, 4)
	c.ok("scancel", links[0].id)
	neverRan(t, links[1:])
}
