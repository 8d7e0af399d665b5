package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// pyTorch is newPyTorch for a test on the cluster, whose nodes see this machine's files.
func (c *cluster) pyTorch() *pytorch {
	c.t.Helper()
	p := newPyTorch(c.t)
	c.env = append(c.env, "PYTHON_EXEC="+p.python, torchMark+"="+p.mark)
	return p
}

// said returns what the ranks of an attempt printed to standard output, from their own files.
func (s *submitted) said(attempt int) string {
	s.c.t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(s.dir.LogPath(attempt, "n", 0, "out")), "*.out"))
	if err != nil {
		s.c.t.Fatal(err)
	}
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.c.t.Fatal(err)
		}
		all = append(all, text...)
	}
	return string(all)
}

// testSlurmTorchTrain trains on nodes with different numbers of tasks, and with an agent on each node.
func testSlurmTorchTrain(t *testing.T, c *cluster) {
	p := c.pyTorch()
	for _, row := range []struct {
		name, nodes, run string
		places           []string // of the ranks: LOCAL_RANK/LOCAL_WORLD_SIZE/GROUP_RANK/GROUP_WORLD_SIZE
	}{
		{"tasks", "-N3 -n5 --ntasks-per-node=2 --cpus-per-task=2", "", []string{"0/2/0/3", "1/2/0/3", "0/2/1/3", "1/2/1/3", "0/1/2/3"}},
		{"agents", "-N4 --ntasks-per-node=1 --cpus-per-task=2", "--nproc-per-node 2",
			[]string{"0/2/0/4", "1/2/0/4", "0/2/1/4", "1/2/1/4", "0/2/2/4", "1/2/2/4", "0/2/3/4", "1/2/3/4"}},
	} {
		lines := trained(c.batch(row.nodes, fmt.Sprintf("srun --cpus-per-task=2 ddpbatch run %s %s\n", row.run, p.script("train.py"))))
		if len(lines) != len(row.places) {
			t.Fatalf("%s: %d ranks have trained, want %d: %q", row.name, len(lines), len(row.places), lines)
		}
		_, results, _ := strings.Cut(lines[0], " losses ")
		for rank, line := range lines {
			want := fmt.Sprintf("rank %d world %d met %d place %s losses %s", rank, len(lines), 1<<len(lines)-1, row.places[rank], results)
			if line != want {
				t.Errorf("%s: a rank says %q, want %q", row.name, line, want)
			}
		}
		p.gone()
	}
}

// torchJob writes the job file of two nodes that each run a script in one rank.
func (c *cluster) torchJob(p *pytorch, name string, script string, args ...string) {
	c.t.Helper()
	c.commandJob(name, "nodes = 2", "1", slices.Concat([]string{p.python, "-u", p.script(script)}, args)...)
}

// The job's own log names the rank that raised an exception, with its traceback.
func testSlurmTorchRaises(t *testing.T, c *cluster) {
	p := c.pyTorch()
	c.torchJob(p, "raises", "fail.py", "quiet")
	s := c.submit("raises.toml")
	if job := s.await(); job["JobState"] != "FAILED" || job["ExitCode"] != "1:0" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	v := s.verdict(1)
	if v.Cause != "crash" || v.FirstRank != 1 || v.Exit != 1 || len(v.Ranks) != 2 || !v.Ranks[1].Followed {
		t.Errorf("verdict: %+v", v)
	}
	log, err := os.ReadFile(s.dir.SlurmLogPath(s.id))
	for name, text := range map[string]string{"the job's log": string(log), "verdict.json": v.Report} {
		if !regexp.MustCompile(
			`(?s)rank 1 on n\d exited with code 1.* in end\n.*ValueError: the loss of step 2 is not a number\n.*1 rank ` +
				`followed: 0`).MatchString(text) {
			t.Errorf("%s does not tell who raised what, where (%v):\n%s", name, err, text)
		}
	}
	s.gone()
}

// After a rank fails, both start again within the job.
func testSlurmTorchRestart(t *testing.T, c *cluster) {
	p := c.pyTorch()
	want := p.uninterrupted()
	c.torchJob(p, "restart", "resume.py", "--file", filepath.Join(c.dir, "state.pt"), "--crash-at", "3")
	s := c.submit("restart.toml", "--set", "launch.max_restarts=2")
	if job := s.await(); job["JobState"] != "COMPLETED" || job["Restarts"] != "0" {
		t.Errorf("Slurm says: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	all := lives(s.said(1) + s.said(2))
	if len(all) != 4 || all[0].port == all[2].port || all[2] != (life{0, 1, all[2].port, 3}) || all[3] != (life{1, 1, all[2].port, 3}) {
		t.Errorf("the ranks began as %+v", all)
	}
	sameLines(t, "the ranks' ends", finals(s.said(2)), want)
	if first, last := s.verdict(1), s.verdict(2); first.Cause != "crash" || !first.Restart || last.Cause != "done" {
		t.Errorf("verdicts: %+v, %+v", first, last)
	}
}

// The batch script receives a warning, the ranks find the stop file and save, and the requeued job ends with the same state as one that was
// not interrupted.
func testSlurmTorchRequeue(t *testing.T, c *cluster) {
	p := c.pyTorch()
	want := p.uninterrupted()
	c.torchJob(p, "requeue", "resume.py", "--file", filepath.Join(c.dir, "state.pt"), "--wait-at", "4")
	s := c.submit("requeue.toml")
	eventually(t, torchLimit, "both ranks have trained four steps", func() bool { return strings.Count(s.said(1), "waiting ") == 2 })
	c.ok("scancel", "--batch", "--signal=USR2", s.id) // Slurm does the same for --signal=B:USR2@lead
	s.goneOn("stopped")
	if first := s.said(1); strings.Count(first, "saved ") != 2 {
		t.Errorf("the first attempt: %s", first)
	}
	if all := lives(s.said(2)); len(all) != 2 || all[0].step != 4 || all[1].step != 4 {
		t.Errorf("the ranks of the second attempt began as %+v", all)
	}
	sameLines(t, "the ranks' ends", finals(s.said(2)), want)
	if !slices.Contains(s.events(), rundir.EventRequeue) {
		t.Errorf("ledger: %q", s.events())
	}
	s.gone()
}
