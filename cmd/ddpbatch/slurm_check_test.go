package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// testSlurmCheckFails: launch.check fails on the second node. The job is requeued without the node; where one node is enough it goes on at
// once, and has the reason in its log.
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
