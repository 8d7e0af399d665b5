package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// If launch.check fails on the second node, the job is requeued without the node. If one node is enough, the job continues at once and its
// log has the reason.
func testSlurmCheckFails(t *testing.T, c *cluster) {
	const check = `[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
[ "$SLURM_NODEID" = 1 ] || exit 0
hostname >bad; echo the cable is out; exit 9`
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	for _, row := range []struct {
		name     string
		args     []string
		requeued bool
	}{
		{"allneeded", nil, true}, {"onewilldo", []string{"--set", "launch.min_nodes=1"}, false},
	} {
		c.commandJob(row.name, "nodes = 2", "1", "true")
		s := c.submit(append([]string{row.name + ".toml", "--set", "launch.check=" + quoteTOML(t, "bash", "-c", check)}, row.args...)...)
		job, log := s.await(), read(s.dir.SlurmLogPath(s.id))
		bad := strings.TrimSpace(read(filepath.Join(c.dir, "bad")))
		if bad == "" {
			t.Fatalf("%s: no node was bad; the log:\n%s", row.name, log)
		}
		if job["JobState"] != "COMPLETED" {
			t.Errorf("%s: Slurm says %s; the log:\n%s", row.name, job["JobState"], log)
		}
		v := s.verdict(1)
		if !slices.Equal(v.Unfit, []string{bad}) {
			t.Errorf("%s: the verdict blames %q, want %s: %+v", row.name, v.Unfit, bad, v)
		}
		if text := read(s.dir.CheckLogPath(1, bad)); text != "the cable is out\n" {
			t.Errorf("%s: the check's log is %q", row.name, text)
		}
		if !strings.Contains(log, bad+" failed a check: bash -c") {
			t.Errorf("%s: the job's log does not say so", row.name)
		}
		if !row.requeued {
			if v.Cause != "done" || job["Restarts"] != "0" {
				t.Errorf("%s: %+v, and %s restarts", row.name, v, job["Restarts"])
			}
			continue
		}
		if v.Cause != "node" || v.Host != bad || job["Restarts"] != "1" || job["ExcNodeList"] != bad {
			t.Errorf("%s: %+v; %s restarts, not on %s", row.name, v, job["Restarts"], job["ExcNodeList"])
		}
		if e := s.event(rundir.EventRequeue); e.Cause != "node" || !slices.Equal(e.Nodes, []string{bad}) {
			t.Errorf("%s: the ledger says of the requeue: %+v", row.name, e)
		}
	}
}

// testSlurmDoctor runs doctor on the nodes of a job. One node has a slow network link, and the nodes do not share a folder.
func testSlurmDoctor(t *testing.T, c *cluster) {
	if out := c.run(c.script, "exec", "n3", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "256kbit",
		"latency", "50ms"); out.code != 0 {
		t.Skipf("no node can be slowed down here: %s", out.stderr)
	}
	t.Cleanup(func() { c.ok(c.script, "exec", "n3", "tc", "qdisc", "del", "dev", "eth0", "root") })
	for _, mpi := range []string{"pmi2", "none"} {
		out := c.ok("salloc", "-Q", "-N4", "srun", "--mpi="+mpi, "--ntasks-per-node=1", "ddpbatch", "doctor", "--json")
		var found struct {
			OK    bool `json:"ok"`
			Nodes []struct{ Host string }
			Pairs []struct {
				A, B      string
				Bandwidth float64
			}
			Findings []struct{ Check, Level, Nodes, Found string }
		}
		if err := json.Unmarshal([]byte(out.stdout), &found); err != nil {
			t.Fatalf("%v: %s", err, out.stdout)
		}
		if len(found.Nodes) != 4 || len(found.Pairs) != 6 || !found.OK {
			t.Errorf("--mpi=%s: %s", mpi, out.stdout)
		}
		for _, p := range found.Pairs {
			// 100 Mbit/s are 12.5 MB/s; the token bucket allows a burst on top of that
			if slow := p.A == "n3" || p.B == "n3"; slow && p.Bandwidth > 30e6 || p.Bandwidth <= 0 {
				t.Errorf("--mpi=%s: %+v", mpi, p)
			}
		}
		named := false
		for _, f := range found.Findings {
			named = named || f.Check == "network" && f.Level == "warn" && f.Nodes == "n3" &&
				strings.HasPrefix(f.Found, "it is slow to all other nodes")
		}
		if !named {
			t.Errorf("--mpi=%s: the slow node is not named: %+v", mpi, found.Findings)
		}
	}
	out := c.exits(1, "salloc", "-Q", "-N2", "srun", "--ntasks-per-node=1", "sh", "-c", "cd /dev/shm && exec ddpbatch doctor")
	if !strings.Contains(out.stdout, "is not the folder that the first node sees by that path") {
		t.Errorf("a folder that nodes do not share: %s", out.stdout)
	}
	if out := c.ok("salloc", "-Q", "-N2", "ddpbatch", "doctor"); !strings.Contains(out.stdout, "slurm") || !strings.Contains(out.stderr,
		"srun --ntasks-per-node=1 ddpbatch doctor") {
		t.Errorf("in a job's shell: %v", out)
	}
}
