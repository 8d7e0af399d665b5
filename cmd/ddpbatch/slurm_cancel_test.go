package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// cancel does not cancel a job that has ended, and does not mark its run, so that it can still be resumed. It does cancel another job that
// is named in the same command.
func testSlurmCancelEnded(t *testing.T, c *cluster) {
	c.commandJob("failed", "nodes = 1", "1", "sh", "-c", `[ -e again ] || exit 7`)
	c.commandJob("runs", "nodes = 1", "1", "sh", "-c", `touch running; exec sleep 1000`)
	failed := c.submit("failed.toml")
	if job := failed.await(); job["JobState"] != "FAILED" {
		t.Fatalf("the job that is to fail: %v", job)
	}
	runs := c.submit("runs.toml")
	// if it were canceled earlier, its own batch script would end it, with its own exit code
	eventually(t, commandLimit, "the other job runs", func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "running"))
		return err == nil
	})
	before := failed.events()
	out := c.exits(exit.Usage, "ddpbatch", "cancel", failed.id, runs.id)
	if want := "job " + failed.id + " has ended already: FAILED (rank 0 on "; !strings.Contains(out.stderr, want) ||
		!strings.Contains(out.stderr, "); there is nothing to cancel\n") {
		t.Errorf("cancel of the job that has failed: %v", out)
	}
	if !strings.Contains(out.stdout, "cancelled job "+runs.id+"\n") || strings.Contains(out.stdout, "cancelled job "+failed.id) {
		t.Errorf("cancel of both: %v", out)
	}
	if job := runs.await(); job["JobState"] != "CANCELLED" {
		t.Errorf("the job that ran: %v", job)
	}
	if after := failed.events(); !slices.Equal(after, before) {
		t.Errorf("the ledger held %q, and after the cancel %q", before, after)
	}
	if row := failed.status(); row.State != "FAILED" || row.Cause != "crash" {
		t.Errorf("status --json after the cancel: %+v", row)
	}
	c.write("again", "")
	c.ok("ddpbatch", "resume", failed.id, "--wait")
}
