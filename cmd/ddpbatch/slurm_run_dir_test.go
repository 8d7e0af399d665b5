package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit"
)

// submitted is a job that the test submitted, and its run directory.
type submitted struct {
	c   *cluster
	id  string
	dir *rundir.Dir
}

// submit submits a job and does not wait for it.
func (c *cluster) submit(args ...string) *submitted {
	c.t.Helper()
	id := strings.TrimSpace(c.ok("ddpbatch", append([]string{"submit", "--parsable"}, args...)...).stdout)
	return c.find(id)
}

// find opens the run of a job.
func (c *cluster) find(id string) *submitted {
	c.t.Helper()
	dir, err := rundir.Find(filepath.Join(c.dir, "runs"), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return &submitted{c, id, dir}
}

// await waits until Slurm reports that the job is over, and returns the fields of the job.
func (s *submitted) await() map[string]string {
	s.c.t.Helper()
	var job map[string]string
	eventually(s.c.t, commandLimit, "job "+s.id+" is over", func() bool {
		job = s.c.job(s.id)
		return !slices.Contains([]string{"PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING"}, job["JobState"])
	})
	return job
}

func (s *submitted) verdict(attempt int) rundir.Verdict {
	s.c.t.Helper()
	v, err := s.dir.Verdict(attempt)
	if err != nil {
		s.c.t.Fatal(err)
	}
	return v
}

// events returns the names of the ledger's events, in order.
func (s *submitted) events() []string {
	s.c.t.Helper()
	events, err := s.dir.Ledger()
	if err != nil {
		s.c.t.Fatal(err)
	}
	var names []string
	for _, e := range events {
		names = append(names, e.Event)
	}
	return names
}

// status returns what `ddpbatch status --json` prints for the job.
func (s *submitted) status() runview.RunStatus {
	s.c.t.Helper()
	return decode[[]runview.RunStatus](s.c.t, []byte(s.c.ok("ddpbatch", "status", "--json", s.id).stdout))[0]
}

// step returns the newest step in the metrics, or 0 if they have none.
func (s *submitted) step() int64 {
	s.c.t.Helper()
	last, _, err := s.dir.LastMetrics()
	if err != nil {
		s.c.t.Fatal(err)
	}
	return last.Step
}

// metric is a line of metrics.jsonl.
type metric struct {
	rundir.Metrics
	Accuracy float64 `json:"accuracy"`
}

func (s *submitted) metrics() (lines []metric) {
	s.c.t.Helper()
	text, err := os.ReadFile(s.dir.MetricsPath())
	if err != nil {
		s.c.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, decode[metric](s.c.t, []byte(line)))
	}
	return lines
}

// checkpoints opens the run's checkpoints and returns their committed steps.
func (s *submitted) checkpoints() (*checkpoint.Dir, []int64) {
	t := s.c.t
	t.Helper()
	dir, err := checkpoint.Open(s.dir.CheckpointsPath(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	infos, err := dir.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	for _, info := range infos {
		if info.Committed {
			steps = append(steps, info.Step)
		}
	}
	if len(steps) == 0 {
		t.Fatal("there is no committed checkpoint")
	}
	return dir, steps
}

// gone waits until no process of the run is left on any node: neither the program nor what it started.
func (s *submitted) gone() {
	s.c.t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			s.c.t.Logf("still there: %q", left)
		}
	}()
	eventually(s.c.t, testkit.Patience, "no process of the run is left", func() bool {
		left = s.c.processes(s.dir.Binary())
		// the nodes are on this machine, which sees their processes
		for _, pid := range processesWith("DDPBATCH_RUN_DIR=" + s.dir.Path()) {
			left = append(left, "process "+strconv.Itoa(pid)+" here")
		}
		return len(left) == 0
	})
}

func decode[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return v
}
