package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testSlurmArray: each element of an array has a run directory of its own below the job's.
func testSlurmArray(t *testing.T, c *cluster) {
	c.write("job.toml", strings.Replace(smallJob, "nodes = 2", "nodes = 2\narray = \"0-1\"", 1))
	id := strings.TrimSpace(c.ok("ddpbatch", "submit", "job.toml", "--parsable", "--wait").stdout)
	whole := c.find(id)
	for i := range 2 {
		element := c.find(fmt.Sprintf("%s_%d", id, i))
		if want := filepath.Join(whole.dir.Path(), "tasks", fmt.Sprint(i)); element.dir.Path() != want {
			t.Errorf("element %d has its run in %s, want %s", i, element.dir.Path(), want)
		}
		if v := element.verdict(1); v.Cause != "done" || v.Exit != 0 {
			t.Errorf("verdict of element %d: %+v", i, v)
		}
		if state := element.finalState(); state.Step != 64 { // 2 epochs of 4096 rows / (32 x 4 ranks)
			t.Errorf("element %d ends at step %d, want 64", i, state.Step)
		}
		row := element.status()
		if row.State != "COMPLETED" || row.Step == nil || *row.Step != 64 {
			t.Errorf("status of element %d: %+v", i, row)
		}
		out := c.ok("ddpbatch", "logs", element.id).stdout
		if !strings.Contains(out, "rank 3 | epoch 1 |") || !strings.Contains(out, filepath.Join(element.dir.Path(), "checkpoints")) {
			t.Errorf("logs of element %d:\n%s", i, out)
		}
	}
	if attempts, err := os.ReadDir(filepath.Join(whole.dir.Path(), "attempts")); err == nil && len(attempts) > 0 {
		t.Errorf("the array as a whole has attempts: %q", attempts)
	}
}

// testSlurmArrayFailure: an array is done only when every element is, and one element can be resumed alone.
func testSlurmArrayFailure(t *testing.T, c *cluster) {
	c.commandJob("array", "nodes = 1\narray = \"0-2\"", "1", "sh", "-c", `test -e mended || test "$SLURM_ARRAY_TASK_ID" != 1 || exit 5`)
	out := c.run("ddpbatch", "submit", "array.toml", "--parsable", "--wait")
	if out.code == 0 {
		t.Errorf("submit --wait says that all went well: %v", out)
	}
	id := strings.TrimSpace(out.stdout)
	if row := c.find(id).status(); row.State != "FAILED" {
		t.Errorf("status of the array: %+v", row)
	}
	elements := make([]*submitted, 3)
	for i, want := range []string{"COMPLETED", "FAILED", "COMPLETED"} {
		elements[i] = c.find(fmt.Sprintf("%s_%d", id, i))
		if row := elements[i].status(); row.State != want {
			t.Errorf("status of element %d: %+v, want %s", i, row, want)
		}
	}
	c.exits(5, "ddpbatch", "logs", "-f", elements[1].id)

	c.write("mended", "")
	c.ok("ddpbatch", "resume", elements[1].id, "--wait")
	for i, want := range []int{1, 2, 1} {
		if row := elements[i].status(); row.State != "COMPLETED" || row.Attempt != want {
			t.Errorf("after the resume of element 1, element %d: %+v, want attempt %d", i, row, want)
		}
	}
}
