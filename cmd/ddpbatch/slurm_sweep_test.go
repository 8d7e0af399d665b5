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

// testSlurmSweep: the elements of a sweep run with their values, whatever became of the command that submitted them; its results are a
// table, and a resume runs the element that failed, and that one alone.
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
	rows("after one failed", "status "+id, "1 0.1 0.25 COMPLETED 1 1/1 0.25", "2 0.01 0.5 FAILED 1 1/1 0.5", "0 1 0.75 COMPLETED 1 1/1 0.75")
	rows("after one failed", "status "+id+" --sort=-loss", "0 1 0.75 COMPLETED 1 1/1 0.75", "2 0.01 0.5 FAILED 1 1/1 0.5", "1 0.1 0.25 COMPLETED 1 1/1 0.25")
	if link, err := os.Readlink(filepath.Join(array.dir.Path(), "tasks", "LR=0.01,LOSS=0.5")); err != nil || link != "2" {
		t.Errorf("the failed element's name leads to %q, %v", link, err)
	}

	c.write("mended", "")
	again := c.ok("ddpbatch", "resume", id, "--wait").stdout
	rows("after the resume", "status "+id, "1 0.1 0.25 COMPLETED 1 1/1 0.25", "2 0.01 0.5 COMPLETED 2 1/1 0.5", "0 1 0.75 COMPLETED 1 1/1 0.75")
	newest, err := array.dir.JobID()
	if err != nil || !strings.Contains(again, "submitted job "+newest+":") {
		t.Errorf("the newest job is %s, %v; resume says %s", newest, err, again)
	}
	if element := c.find(newest + "_2").status(); element.State != "COMPLETED" || element.Job != newest+"_2" {
		t.Errorf("status of the element in its second job: %+v", element)
	}
	if out := c.ok("ddpbatch", "resume", id).stdout; out != "sweep is finished\n" {
		t.Errorf("resume of the whole: %s", out)
	}
}

// testSlurmSweepLarge: a sweep of a thousand elements is one call of sbatch, and as large as the cluster takes; one more is refused
// before anything is there.
func testSlurmSweepLarge(t *testing.T, c *cluster) {
	c.write("large.toml", `name = "large"
[slurm]
nodes = 1
hold = true
[launch]
command = ["true"]
[sweep]
parallel = 7
"setup.env.N" = "1-1001"
`)
	out := c.exits(exit.Usage, "ddpbatch", "submit", "large.toml", "--set", "sweep.setup.env.N=1-1002")
	if want := "the sweep has 1002 elements, and this cluster takes arrays of at most 1001 (MaxArraySize in slurm.conf)"; !strings.Contains(out.stderr, want) {
		t.Errorf("a sweep too large: %v", out)
	}
	nothingSubmitted(t, c)

	calls := filepath.Join(c.dir, "calls")
	shim := filepath.Join(c.dir, "shim")
	if err := os.Mkdir(shim, 0o700); err != nil {
		t.Fatal(err)
	}
	c.write("shim/sbatch", fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\nPATH=${PATH#*:} exec sbatch \"$@\"\n", calls))
	c.env = append(c.env, "PATH="+shim+":"+os.Getenv("PATH"))
	id := strings.TrimSpace(c.ok("ddpbatch", "submit", "large.toml", "--parsable").stdout)
	if text, err := os.ReadFile(calls); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("sbatch was called with %q, %v", text, err)
	}
	if entries, err := os.ReadDir(filepath.Join(c.find(id).dir.Path(), "tasks")); err == nil && len(entries) > 0 {
		t.Errorf("elements that wait have %d folders", len(entries))
	}
	results := c.ok("ddpbatch", "status", id).stdout
	if lines := strings.Split(strings.TrimSpace(results), "\n"); len(lines) != 1001 || lines[0] != "0\t1\tPENDING\t0\t-\t-\tJobHeldUser" {
		t.Errorf("%d lines of status, the first %q", len(lines), lines[0])
	}
	c.ok("ddpbatch", "cancel", id)
	c.exits(exit.Failed, "ddpbatch", "logs", "-f", id)
}
