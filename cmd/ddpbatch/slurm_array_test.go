package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// Each element of an array has its own run directory below the job's.
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

// An array is done only when each of its elements is, and one element can be resumed alone.
func testSlurmArrayFailure(t *testing.T, c *cluster) {
	c.commandJob("array", "nodes = 1\narray = \"0-2\"", "1", "sh", "-c", `test -e mended || test "$SLURM_ARRAY_TASK_ID" != 1 || exit 5`)
	id := strings.TrimSpace(c.exits(5, "ddpbatch", "submit", "array.toml", "--parsable", "--wait").stdout)
	if row := c.find(id).status(); row.State != "FAILED" || row.Attempt != 1 || row.Exit == nil || *row.Exit != 5 || row.Cause != "crash" ||
		!strings.HasPrefix(row.Message, "2 of 3 elements are done; element 1: rank 0 ") {
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

// The logs of an array are those of its elements, its exit code is the largest of theirs, and an element that waits can be canceled.
func testSlurmArrayFollow(t *testing.T, c *cluster) {
	c.commandJob("array", "nodes = 1\narray = \"0-4%3\"", "1", "sh", "-c", `echo element $SLURM_ARRAY_TASK_ID
until [ -e go ]; do sleep 0.05; done
[ -e mended ] && exit
case $SLURM_ARRAY_TASK_ID in 1) exit 7;; 2) exit 3;; esac`)
	follow := c.start("ddpbatch", "submit", "array.toml", "--follow")
	eventually(t, commandLimit, "submit --follow shows what three elements write", func() bool {
		out := follow.stdout.String()
		return strings.Contains(out, "[0] element 0\n") && strings.Contains(out, "[1] element 1\n") &&
			strings.Contains(out, "[2] element 2\n")
	})
	id := regexp.MustCompile(`submitted job ([0-9]+):`).FindStringSubmatch(follow.stdout.String())[1]
	array := c.find(id)
	if row := array.status(); row.State != "RUNNING" || row.Attempt != 1 || row.Exit != nil || row.Message != "0 of 5 elements are done" {
		t.Errorf("status while it runs: %+v", row)
	}
	path := filepath.Join("runs", filepath.Base(array.dir.Path()))
	says := func(code int, what string, args ...string) {
		t.Helper()
		if out := c.exits(code, "ddpbatch", args...); !strings.Contains(out.stdout+out.stderr, what) {
			t.Errorf("ddpbatch %s: want %q, got %v", strings.Join(args, " "), what, out)
		}
	}
	for _, command := range []string{"cancel", "logs", "status", "resume"} {
		says(exit.Usage, "array element 7 does not exist in "+path+"; its elements are 0-4\n", command, id+"_7")
	}
	says(exit.Usage, "element 3 of the array "+path+" has not begun yet", "logs", id+"_3")
	says(0, "cancelled job "+id+"_3\n", "cancel", id+"_3")

	c.write("go", "")
	out := follow.end(commandLimit)
	for _, want := range []string{"job " + id + ": 3 of 5 elements did not end well\n", "\n  job " + id + "_1: rank 0 ",
		"\n  job " + id + "_2: rank 0 ",
		"\n  job " + id + "_3 ended as CANCELLED: it was canceled before it began"} {
		if out.code != 7 || !strings.Contains(out.stderr, want) {
			t.Errorf("submit --follow: want exit code 7 and %q, got %v", want, out)
		}
	}
	if row := array.status(); row.State != "FAILED" || row.Exit == nil || *row.Exit != 7 ||
		!strings.HasPrefix(row.Message, "2 of 5 elements are done, 3 did not end well; element 1: rank 0 ") {
		t.Errorf("status at its end: %+v", row)
	}
	ranks := c.ok("ddpbatch", "logs", id, "--rank", "0").stdout
	if want := "[0] element 0\n[1] element 1\n[2] element 2\n[4] element 4\n"; ranks != want {
		t.Errorf("logs --rank 0 are %q, want %q", ranks, want)
	}
	c.exits(7, "ddpbatch", "logs", "-f", id)

	// for elements that are resumed alone, resume waits for them and exits with their code
	c.write("mended", "")
	c.ok("ddpbatch", "resume", id+"_1", "--wait")
	if out := c.ok("ddpbatch", "resume", id+"_2", "--follow"); !strings.Contains(out.stdout, "[2] element 2\n") ||
		strings.Contains(out.stdout, "[1]") {
		t.Errorf("resume --follow of element 2: %v", out)
	}
	if row := array.status(); row.State == "COMPLETED" || !strings.HasPrefix(row.Message, "4 of 5 elements are done") {
		t.Errorf("status before element 3 has run: %+v", row)
	}
	c.ok("ddpbatch", "resume", id, "--wait") // the rest: the element that was canceled
	if row := array.status(); row.State != "COMPLETED" || row.Attempt != 2 || row.Message != "all 5 elements are done" {
		t.Errorf("status after all have run: %+v", row)
	}
	says(0, "array is finished; to run it again ", "resume", id)
}
