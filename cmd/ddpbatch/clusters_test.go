package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// at runs ddpbatch in a shell whose SLURM_CLUSTERS names a cluster.
func (q *queue) at(cluster, parent string, args ...string) (code int, out, errs string) {
	q.t.Helper()
	e, o, s := q.env(parent)
	e.Environ = append(e.Environ, "SLURM_CLUSTERS="+cluster)
	code = Main(q.t.Context(), e, append([]string{"ddpbatch"}, args...))
	return code, o.String(), s.String()
}

// states are those that status tells, by job and cluster: "500;east": "PENDING".
func (q *queue) states(parent string) map[string]string {
	q.t.Helper()
	code, out, errs := q.run(parent, "status", "--json")
	var rows []runview.RunStatus
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		q.t.Fatalf("status: %d, %s%s: %v", code, out, errs, err)
	}
	states := map[string]string{}
	for _, row := range rows {
		states[strings.TrimSuffix(row.Job+";"+row.Cluster, ";")] = row.State
	}
	return states
}

func (q *queue) wantStates(parent string, want map[string]string) {
	q.t.Helper()
	got := q.states(parent)
	for id, state := range want {
		if got[id] != state || len(got) != len(want) {
			q.t.Fatalf("states are %v, want %v", got, want)
		}
	}
}

// A job that sbatch has submitted to another cluster is followed there, by commands of any shell, and jobs that have the same number
// elsewhere are others.
func TestJobsAreFollowedOnTheirCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	code, out, errs := q.at("east", parent, "submit", "job.toml")
	if code != 0 || !strings.HasPrefix(out, "submitted job 500 on cluster east: ") || errs != "" {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	for _, cluster := range []string{"", "west"} {
		if code, out, errs := q.at(cluster, parent, "submit", "job.toml", "--parsable"); code != 0 || out != "500\n" {
			t.Fatalf("%d, %s%s", code, out, errs)
		}
	}
	q.wantStates(parent, map[string]string{"500;east": "PENDING", "500": "PENDING", "500;west": "PENDING"})
	if _, out, _ := q.run(parent, "status"); !strings.Contains(out, "\n500;east\t") {
		t.Errorf("the table does not name the cluster:\n%s", out)
	}

	if code, out, errs := q.run(parent, "cancel", "500;east"); code != 0 || !strings.HasPrefix(out, "cancelled job 500\n") {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	q.wantStates(parent, map[string]string{"500;east": "CANCELLED", "500": "PENDING", "500;west": "PENDING"})
	east := must(t, func(name string) (*rundir.Dir, error) { return rundir.Find(filepath.Join(parent, "runs"), name) }, "500;east")
	if code, out, errs := q.run(parent, "cancel", "500;east"); code == 0 || !strings.Contains(errs, "job 500 has ended already: CANCELLED") {
		t.Errorf("again: %d, %s%s", code, out, errs)
	}

	// what is submitted by itself again is here
	if code, out, errs := q.run(parent, "resume", "500;east", "--json"); code != 0 || strings.Contains(out, `"cluster"`) {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	if id, err := east.JobID(); id != "501" || err != nil || east.Cluster() != "" {
		t.Errorf("resumed as %s, %v on %q", id, err, east.Cluster())
	}
	q.wantStates(parent, map[string]string{"501": "PENDING", "500": "PENDING", "500;west": "PENDING"})

	// one that does not answer hides no other
	q.must(os.Rename(filepath.Join(q.dir, "clusters", "west"), filepath.Join(q.dir, "clusters", "lost")))
	west := must(t, func(name string) (*rundir.Dir, error) { return rundir.Find(filepath.Join(parent, "runs"), name) }, "500;west")
	q.must(west.SetJobID("500;lost"))
	q.wantStates(parent, map[string]string{"501": "PENDING", "500": "PENDING", "500;lost": "UNKNOWN"})
	if code, out, errs := q.run(parent, "status", "500;lost"); code == 0 || !strings.Contains(errs, "cannot reach") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}

// A batch script, which has the variables of the shell that submitted it, asks the cluster that it runs on.
func TestAnAttemptAsksItsOwnCluster(t *testing.T) {
	q := newQueue(t)
	e, _, _ := q.env(t.TempDir())
	e.Environ = append(e.Environ, "SLURM_CLUSTERS=east,west", "SLURM_CLUSTER_NAME=east", "SLURM_CONF=/etc/slurm.conf")
	env := e.attemptEnv()
	if env.Cluster != "east" || slices.ContainsFunc(env.Slurm.Environ, func(entry string) bool { return strings.HasPrefix(entry, "SLURM_CLUSTERS") }) ||
		!slices.Contains(env.Slurm.Environ, "SLURM_CONF=/etc/slurm.conf") {
		t.Errorf("on %q, with %q", env.Cluster, env.Slurm.Environ)
	}
}

// The links of a chain are all on the cluster of the first, and are cancelled there.
func TestAChainIsOnOneCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	if code, out, errs := q.at("west,east", parent, "submit", "job.toml", "--set", "slurm.chain=3"); code != 0 {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	want := []string{"--parsable", "--clusters=east --parsable --dependency=afterany:500", "--clusters=east --parsable --dependency=afterany:500:501"}
	if calls := q.sbatchCalls(); !slices.Equal(calls, want) {
		t.Errorf("called sbatch with %q, want %q", calls, want)
	}
	q.wantStates(parent, map[string]string{"500;east": "PENDING"})
	if code, out, errs := q.run(parent, "cancel", "500"); code != 0 || strings.Count(out, "cancelled job") != 3 {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	q.wantStates(parent, map[string]string{"500;east": "CANCELLED"})
}
