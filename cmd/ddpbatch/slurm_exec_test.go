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

// Commands and shells run on the nodes of a job beside its own step, which holds all of the job's resources, and do not wait for that step.
// The job is a plain job, an element of an array, or a heterogeneous job.
func testSlurmExec(t *testing.T, c *cluster) {
	const command = `touch "running.$DDPBATCH_RUN_NAME$SLURM_ARRAY_TASK_ID.$RANK"; mkdir -p sub; cd sub; exec sleep 1000`
	begin := func(name string, options string, ranks ...string) *submitted {
		t.Helper()
		c.commandJob(name, options, "2", "sh", "-c", strings.ReplaceAll(command, "$DDPBATCH_RUN_NAME", name))
		s := c.submit(name + ".toml")
		for _, rank := range ranks {
			eventually(t, commandLimit, name+"'s rank "+rank+" runs", func() bool {
				_, err := os.Stat(filepath.Join(c.dir, "running."+name+rank))
				return err == nil
			})
		}
		return s
	}
	lines := func(out output) string {
		list := strings.Split(strings.TrimSpace(out.stdout), "\n")
		slices.Sort(list)
		return strings.Join(list, "\n")
	}

	s := begin("plain", "nodes = 2\nexclusive = true", ".0", ".1", ".2", ".3")
	out := c.ok("ddpbatch", "exec", s.id, "--", "sh", "-c", `echo "$SLURMD_NODENAME $RANK $(basename "$PWD") ${DDPBATCH_COOKIE-none}"`)
	if want := "[n1] n1 0 sub none\n[n2] n2 2 sub none"; lines(out) != want {
		t.Errorf("exec printed %q, want %q", lines(out), want)
	}
	out = c.exits(3, "ddpbatch", "exec", s.id, "--rank", "all", "--", "sh", "-c", `kill -0 "$DDPBATCH_RANK_PID" && exit "$RANK"`)
	if out.stdout != "" {
		t.Errorf("exec without output printed %v", out)
	}
	if out = c.ok("ddpbatch", "exec", s.id, "--rank", "3", "--", "sh", "-c", `echo "$RANK on $SLURMD_NODENAME"`); out.stdout != "3 on "+
		"n2\n" {
		t.Errorf("exec for one rank: %v", out)
	}
	c.exits(127, "ddpbatch", "exec", s.id, "--node", "n2", "--", "no-such-program")
	out = c.exits(5, "sh", "-c",
		fmt.Sprintf("echo 'echo $RANK in $(basename $PWD); exit 5' | SHELL=/bin/sh ddpbatch shell %s --rank 2", s.id))
	if out.stdout != "2 in sub\n" || !strings.Contains(out.stderr, "ddpbatch: n2, beside rank 2, which is process ") {
		t.Errorf("a shell that reads a pipe: %v", out)
	}
	// script(1) provides a terminal
	out = c.exits(6, "sh", "-c",
		fmt.Sprintf("echo 'test -t 0 && echo $RANK at $(tty); exit 6' | SHELL=/bin/sh script -qec 'ddpbatch shell %s --node n1' /dev/null",
			s.id))
	if !strings.Contains(out.stdout, "0 at /dev/pts/") {
		t.Errorf("a shell on a terminal: %v", out)
	}
	out = c.ok("ddpbatch", "stacks", s.id) // all of them sleep, or their shells wait for a process that sleeps
	if !strings.Contains(out.stdout, "\nranks 0-3 on n1, n2: asleep\n") || strings.Contains(out.stdout, "no answer") {
		t.Errorf("stacks: %v", out)
	}
	c.ok("ddpbatch", "cancel", s.id)
	s.await()
	out = c.exits(exit.Usage, "ddpbatch", "exec", s.id, "--", "true")
	if want := "ddpbatch: job " + s.id + " has ended: CANCELLED ("; !strings.Contains(out.stderr, want) {
		t.Errorf("of a job that has ended: %v, want %q", out, want)
	}

	array := begin("array", "nodes = 1\narray = \"3-4\"", "3.0", "4.1")
	out = c.ok("ddpbatch", "exec", array.id+"_3", "--", "sh", "-c", `echo "$SLURM_ARRAY_TASK_ID"`)
	if out.stdout != "3\n" {
		t.Errorf("exec of an element: %v", out)
	}
	c.exits(exit.Usage, "ddpbatch", "exec", array.id, "--", "true")
	c.ok("ddpbatch", "cancel", array.id)

	het := begin("het", "nodes = 1\n[[slurm.component]]\nnodes = 2\nnproc_per_node = 1", ".0", ".1", ".2", ".3")
	out = c.ok("ddpbatch", "exec", het.id, "--rank", "1-3", "--", "sh", "-c", `echo "of $WORLD_SIZE"`)
	if got := strings.Count(out.stdout, "] of 4\n"); got != 3 {
		t.Errorf("exec of a heterogeneous job: %v", out)
	}
	c.ok("ddpbatch", "cancel", het.id)
	held := c.submit("plain.toml", "--", "--hold")
	out = c.exits(exit.Usage, "ddpbatch", "exec", held.id, "--", "true")
	if want := "ddpbatch: job " + held.id + " is not running: PENDING (JobHeldUser)"; !strings.Contains(out.stderr, want) {
		t.Errorf("of a job that waits: %v, want %q", out, want)
	}
}
