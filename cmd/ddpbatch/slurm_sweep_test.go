package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// The elements of a sweep run with their values, even if the command that submitted them was killed. Its results are a table, and a resume
// runs only the element that failed.
func testSlurmSweep(t *testing.T, c *cluster) {
	c.write("sweep.toml", `name = "sweep"
[slurm]
nodes = 1
time = "00:05:00"
[launch]
command = ["sh", "-c", '''
echo "{\"step\":1,\"steps\":1,\"loss\":$LOSS}" >>$DDPBATCH_RUN_DIR/metrics.jsonl
test -e mended || test $LR != 0.01 || exit 5''']
[sweep]
mode = "zip"
"setup.env.LR" = [1, 0.1, 0.01]
"setup.env.LOSS" = [0.75, 0.25, 0.5]
`)
	id := strings.TrimSpace(c.exits(5, "ddpbatch", "submit", "sweep.toml", "--parsable", "--wait").stdout)
	array := c.find(id)
	rows := func(when, command string, want ...string) {
		t.Helper()
		out := c.ok("ddpbatch", strings.Fields(command)...)
		var got []string
		for line := range strings.Lines(out.stdout) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			got = append(got, strings.Join(fields[:min(7, len(fields))], " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, want %q", when, command, got, want)
		}
	}
	rows("after one failed", "status "+id, "1 0.1 0.25 COMPLETED 1 1/1 0.25", "2 0.01 0.5 FAILED 1 1/1 0.5",
		"0 1 0.75 COMPLETED 1 1/1 0.75")
	rows("after one failed", "status "+id+" --sort=-loss", "0 1 0.75 COMPLETED 1 1/1 0.75", "2 0.01 0.5 FAILED 1 1/1 0.5",
		"1 0.1 0.25 COMPLETED 1 1/1 0.25")
	if link, err := os.Readlink(filepath.Join(array.dir.Path(), "tasks", "LR=0.01,LOSS=0.5")); err != nil || link != "2" {
		t.Errorf("the failed element's name leads to %q, %v", link, err)
	}

	c.write("mended", "")
	again := c.ok("ddpbatch", "resume", id, "--wait").stdout
	rows("after the resume", "status "+id, "1 0.1 0.25 COMPLETED 1 1/1 0.25", "2 0.01 0.5 COMPLETED 2 1/1 0.5",
		"0 1 0.75 COMPLETED 1 1/1 0.75")
	newest, err := array.dir.JobID()
	if err != nil || !strings.Contains(again, "submitted job "+newest+":") {
		t.Errorf("the newest job is %s, %v; resume says %s", newest, err, again)
	}
	if element := c.find(newest + "_2").status(); element.State != "COMPLETED" || element.Job != newest+"_2" {
		t.Errorf("status of the element in its second job: %+v", element)
	}
	if out := c.ok("ddpbatch", "resume", id).stdout; !strings.HasPrefix(out, "sweep is finished; to run it again ") {
		t.Errorf("resume of the whole: %s", out)
	}
}

// A sweep with as many elements as the cluster permits is one array. A larger sweep is split into as few arrays as possible, which are
// submitted, shown and canceled together. If Slurm refuses the second array, the first is canceled.
func testSlurmSweepLarge(t *testing.T, c *cluster) {
	c.write("large.toml", `name = "large"
[slurm]
nodes = 1
hold = true
[launch]
command = ["sh", "-c", "touch ran.$N"]
[sweep]
parallel = 7
"setup.env.N" = "1-1001"
`)
	calls := filepath.Join(c.dir, "calls")
	shim := filepath.Join(c.dir, "shim")
	if err := os.Mkdir(shim, 0o700); err != nil {
		t.Fatal(err)
	}
	c.write("shim/sbatch", fmt.Sprintf(`#!/bin/sh
echo "$*" >>%s
PATH=${PATH#*:}
[ ! -e refuse ] || ! grep -q OFFSET=501 %[1]s || set -- -p nowhere "$@"
exec sbatch "$@"
`, calls))
	c.env = append(c.env, "PATH="+shim+":"+os.Getenv("PATH"))
	called := func(want ...string) {
		t.Helper()
		text, err := os.ReadFile(calls)
		if lines := strings.Count(string(text), "\n"); err != nil || lines != len(want) {
			t.Errorf("sbatch was called with %q, %v; want %d calls", text, err, len(want))
		}
		for i, line := range strings.SplitN(string(text), "\n", len(want)) {
			if !strings.Contains(line, want[i]) {
				t.Errorf("call %d of sbatch is %q, want %q in it", i+1, line, want[i])
			}
		}
		if err := os.Remove(calls); err != nil {
			t.Error(err)
		}
	}
	rows := func(id string, want int, first string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(c.ok("ddpbatch", "status", id).stdout), "\n")
		if len(lines) != want || lines[0] != first {
			t.Errorf("%d lines of status, the first %q; want %d, and %q", len(lines), lines[0], want, first)
		}
	}
	id := strings.TrimSpace(c.ok("ddpbatch", "submit", "large.toml", "--parsable").stdout)
	called("--parsable")
	if entries, err := os.ReadDir(filepath.Join(c.find(id).dir.Path(), "tasks")); err == nil && len(entries) > 0 {
		t.Errorf("elements that wait have %d folders", len(entries))
	}
	rows(id, 1001, "0\t1\tPENDING\t0\t-\t-\tJobHeldUser")
	c.ok("ddpbatch", "cancel", id)
	c.exits(exit.Failed, "ddpbatch", "logs", "-f", id)

	more := []string{"submit", "large.toml", "--parsable", "--set", "sweep.setup.env.N=1-1002"}
	try := c.ok("ddpbatch", "submit", "large.toml", "--test-only", more[3], more[4])
	if called("--test-only --array=0-500%4"); !strings.Contains(try.stdout, "the first of the 2 arrays") {
		t.Errorf("submit --test-only: %v", try)
	}
	s := c.submit(append([]string{more[1]}, more[3:]...)...)
	called("--array=0-500%4 --export=ALL,DDPBATCH_ARRAY_OFFSET=0 ", "--array=0-500%3 --export=ALL,DDPBATCH_ARRAY_OFFSET=501 ")
	rows(s.id, 1002, "0\t1\tPENDING\t0\t-\t-\tJobHeldUser")
	known, err := s.dir.Submissions()
	if err != nil || len(known.Jobs) != 2 {
		t.Fatalf("the sweep is recorded as the jobs %q, %v", known.Jobs, err)
	}
	third := known.Jobs[1] + "_3" // its other elements still wait
	c.ok("scontrol", "release", third)
	element := c.find(s.id)
	eventually(t, commandLimit, "element 504 runs", func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "ran.505"))
		return err == nil
	})
	element.id = third
	if job := element.await(); job["JobState"] != "COMPLETED" {
		t.Errorf("Slurm says of element 504: %s", job["JobState"])
	}
	if row := c.find(third).status(); row.Job != third || row.State != "COMPLETED" || filepath.Base(row.RunDir) != "504" {
		t.Errorf("status of %s: %+v", third, row)
	}
	c.ok("ddpbatch", "cancel", s.id)
	for _, id := range known.Jobs {
		eventually(t, commandLimit, "array "+id+" is cancelled", func() bool { return len(c.jobs("-j", id)) == 0 })
	}

	c.write("refuse", "")
	before := len(c.jobs("-t", "all"))
	out := c.exits(exit.Refused, "ddpbatch", more...)
	if !strings.Contains(out.stderr, "array 2 of 2 of the sweep: ") ||
		!strings.Contains(out.stderr, "(the arrays before it, job ") {
		t.Errorf("where the second array is refused: %v", out)
	}
	eventually(t, commandLimit, "the first array is cancelled", func() bool { return len(c.jobs()) == 0 })
	if after := len(c.jobs("-t", "all")); after != before+1 {
		t.Errorf("%d jobs were there before, and %d after", before, after)
	}
	out = c.exits(exit.Usage, "ddpbatch", append(more, "--set", "sweep.parallel=1")...)
	if !strings.Contains(out.stderr, "sweep.parallel = 1 is less than the 2 arrays") {
		t.Errorf("a limit of one element: %v", out)
	}
}
