package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
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

// states returns the states that status prints, by job and cluster: "500;east": "PENDING".
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

// If sbatch has submitted a job to another cluster, commands in any shell follow it there. Jobs with the same number on other clusters are
// different jobs.
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
	if code, out, errs := q.run(parent, "cancel", "500;east"); code == 0 ||
		!strings.Contains(errs, "job 500 has ended already: CANCELLED") {
		t.Errorf("again: %d, %s%s", code, out, errs)
	}

	// resume submits it to the cluster where it was, whatever the shell names now
	if code, out, errs := q.at("west", parent, "resume", "500;east", "--json"); code != 0 || !strings.Contains(out, `"cluster": "east"`) {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	if id, err := east.JobID(); id != "501" || err != nil || east.Cluster() != "east" {
		t.Errorf("resumed as %s, %v on %q", id, err, east.Cluster())
	}
	q.wantStates(parent, map[string]string{"501;east": "PENDING", "500": "PENDING", "500;west": "PENDING"})

	// if one cluster does not answer, status still shows the jobs of the others
	q.must(os.Rename(filepath.Join(q.dir, "clusters", "west"), filepath.Join(q.dir, "clusters", "lost")))
	west := must(t, func(name string) (*rundir.Dir, error) { return rundir.Find(filepath.Join(parent, "runs"), name) }, "500;west")
	q.must(west.SetJobID("500;lost"))
	q.wantStates(parent, map[string]string{"501;east": "PENDING", "500": "PENDING", "500;lost": "UNKNOWN"})
	if code, out, errs := q.run(parent, "status", "500;lost"); code == 0 || !strings.Contains(errs, "cannot reach") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}

// The cluster that a later command's shell names does not affect existing runs: commands ask about their jobs, cancel them and submit them
// again on the cluster to which they were submitted.
func TestLaterShellsMoveNoRun(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.clustersJob(parent, "east", "")
	for _, want := range []string{"500", "501"} { // on the cluster east: not the jobs under test
		if code, out, errs := q.run(parent, "submit", "job.toml", "--parsable"); code != 0 || out != want+"\n" {
			t.Fatalf("%d, %s%s", code, out, errs)
		}
	}
	q.jobFile(parent)
	if code, out, errs := q.run(parent, "submit", "job.toml", "--parsable"); code != 0 || out != "500\n" {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	here := must(t, rundir.List, filepath.Join(parent, "runs"))[0]
	if code, _, errs := q.at("east", parent, "resume", here.Path()); code == 0 || !strings.Contains(errs, "PENDING") {
		t.Errorf("a job that waits is resumed in a shell of another cluster: %d, %s", code, errs)
	}
	if code, out, errs := q.at("east", parent, "cancel", here.Path()); code != 0 {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	q.wantStates(parent, map[string]string{"500": "CANCELLED", "500;east": "PENDING", "501;east": "PENDING"})

	// a job whose submission was never recorded is found on its cluster, and is not submitted twice
	q.says("mode", "lost")
	if code, out, errs := q.at("west", parent, "submit", "job.toml"); code == 0 {
		t.Fatalf("%s%s", out, errs)
	}
	q.says("mode", "")
	q.wantStates(parent, map[string]string{"500": "CANCELLED", "500;east": "PENDING", "501;east": "PENDING", "500;west": "PENDING"})
	lost := must(t, rundir.List, filepath.Join(parent, "runs"))[0]
	if code, _, errs := q.run(parent, "resume", lost.Path()); code == 0 || !strings.Contains(errs, "PENDING") {
		t.Errorf("a lost job is submitted again: %d, %s", code, errs)
	}
	if code, _, errs := q.at("all", parent, "submit", "job.toml"); code != exit.Usage ||
		!strings.Contains(errs, `SLURM_CLUSTERS is "all"`) {
		t.Errorf("%d, %s", code, errs)
	}
}

// Two chains have jobs of the same numbers. The cluster selects one of them, also for a later link.
func TestALinkIsNamedWithItsCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	for _, cluster := range []string{"east", "west"} {
		q.clustersJob(parent, cluster, "chain = 2\n")
		if code, out, errs := q.run(parent, "submit", "job.toml"); code != 0 {
			t.Fatalf("%d, %s%s", code, out, errs)
		}
	}
	if code, _, errs := q.run(parent, "cancel", "501;south"); code == 0 {
		t.Errorf("a job of no cluster is cancelled: %s", errs)
	}
	if code, out, errs := q.run(parent, "cancel", "501;east"); code != 0 {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	q.wantStates(parent, map[string]string{"500;east": "CANCELLED", "500;west": "PENDING"})
}

// A batch script, which inherits the variables of the shell that submitted it, asks the cluster on which it runs.
func TestAnAttemptAsksItsOwnCluster(t *testing.T) {
	q := newQueue(t)
	e, _, _ := q.env(t.TempDir())
	e.Environ = append(e.Environ, "SLURM_CLUSTERS=east,west", "SLURM_CLUSTER_NAME=east", "SLURM_CONF=/etc/slurm.conf")
	env := e.attemptEnv()
	names := slices.ContainsFunc(env.Slurm.Environ, func(entry string) bool { return strings.HasPrefix(entry, "SLURM_CLUSTERS") })
	if env.Cluster != "east" || names || !slices.Contains(env.Slurm.Environ, "SLURM_CONF=/etc/slurm.conf") {
		t.Errorf("on %q, with %q", env.Cluster, env.Slurm.Environ)
	}
}

// All links of a chain are on the cluster of the first, and cancel reaches them there.
func TestAChainIsOnOneCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	if code, out, errs := q.at("west,east", parent, "submit", "job.toml", "--set", "slurm.chain=3"); code != 0 {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	want := []string{
		"--clusters=west,east --parsable", "--clusters=east --parsable --dependency=afterany:500",
		"--clusters=east --parsable --dependency=afterany:500:501",
	}
	if calls := q.sbatchCalls(); !slices.Equal(calls, want) {
		t.Errorf("called sbatch with %q, want %q", calls, want)
	}
	q.wantStates(parent, map[string]string{"500;east": "PENDING"})
	if code, out, errs := q.run(parent, "cancel", "500"); code != 0 || strings.Count(out, "cancelled job") != 3 {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	q.wantStates(parent, map[string]string{"500;east": "CANCELLED"})
}

// clustersJob writes a job that may go to the given clusters, with additional lines.
func (q *queue) clustersJob(parent, clusters, more string) {
	q.t.Helper()
	text := "name = \"x\"\n[launch]\ncommand = [\"true\"]\n[slurm]\nclusters = \"" + clusters + "\"\n" + more
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(text), 0o600))
}

// A job goes to the clusters that its file names, whichever cluster the shell names. Commands follow it on the one that sbatch has chosen.
func TestSubmitNamesTheClusters(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.clustersJob(parent, "west,east", "chain = 2\n")
	code, out, errs := q.run(parent, "submit", "job.toml", "--dry-run")
	if code != 0 || !strings.Contains(out, "\n#SBATCH --clusters=west,east\n") ||
		!strings.Contains(errs, "would run: sbatch --clusters=west,east --parsable script.sh") ||
		!strings.Contains(errs, "sbatch --clusters=CLUSTER --parsable") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	code, out, errs = q.at("south", parent, "submit", "job.toml")
	if code != 0 || !strings.HasPrefix(out, "submitted job 500 on cluster east: ") {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	want := []string{"--clusters=west,east --parsable", "--clusters=east --parsable --dependency=afterany:500"}
	if calls := q.sbatchCalls(); !slices.Equal(calls, want) {
		t.Errorf("called sbatch with %q, want %q", calls, want)
	}
	q.wantStates(parent, map[string]string{"500;east": "PENDING"})

	// a resume may choose another cluster
	if code, out, errs := q.run(parent, "cancel", "500;east"); code != 0 {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	if code, out, errs := q.run(parent, "resume", "500;east", "--set", "slurm.clusters=west"); code != 0 ||
		!strings.HasPrefix(out, "submitted job 500 on cluster west: ") {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	q.wantStates(parent, map[string]string{"500;west": "PENDING"})
	if code, out, errs := q.run(parent, "resume", "500;west"); code == 0 || !strings.Contains(errs, "have not ended") {
		t.Errorf("resumed while it waits: %d, %s%s", code, out, errs)
	}
}

// Before submit sends a job, it asks the cluster to which the job goes for its limits. If there are several clusters, a sweep fits each.
func TestLimitsAreThoseOfTheCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(q.dir, "scontrol"), []byte(`#!/bin/sh
echo "$*" >>"${0%/*}/asked"
case $1 in --clusters=west) most=2 ;; *) most=4 ;; esac
printf 'KillWait = 30 sec\nMaxArraySize = %s\n' $most
`), 0o700))
	sweep := "[sweep]\n\"setup.env.A\" = [1, 2, 3, 4]\n"
	for clusters, arrays := range map[string]int{"east": 1, "west": 2, "east,west": 2} {
		q.clustersJob(parent, clusters, sweep)
		code, out, errs := q.run(parent, "submit", "job.toml", "--test-only")
		if parted := strings.Contains(out, "the first of the 2 arrays"); code != 0 || parted != (arrays == 2) {
			t.Errorf("%s: %d, %s%s", clusters, code, out, errs)
		}
	}
	q.clustersJob(parent, "east,west", "")
	if code, _, errs := q.run(parent, "check", "--slurm", "job.toml"); code != 0 ||
		!strings.Contains(errs, `the limits of the partition are not checked: slurm.clusters = "east,west" names several clusters`) {
		t.Errorf("check --slurm: %d, %s", code, errs)
	}
	q.clustersJob(parent, "east", "")
	q.must(os.Remove(filepath.Join(q.dir, "asked")))
	q.run(parent, "check", "--slurm", "job.toml")
	if asked, _ := os.ReadFile(filepath.Join(q.dir, "asked")); !strings.HasPrefix(string(asked), "--clusters=east ") {
		t.Errorf("check --slurm asked %q", asked)
	}
}

// If sbatch accepted a job that was never recorded, commands find it on its cluster, and so does the job itself.
func TestALostJobIsFoundOnItsCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.clustersJob(parent, "west,east", "")
	q.says("mode", "lost")
	for range 2 {
		if code, out, errs := q.run(parent, "submit", "job.toml"); code == 0 {
			t.Fatalf("%s%s", out, errs)
		}
	}
	q.says("mode", "")
	q.wantStates(parent, map[string]string{"500;east": "PENDING", "501;east": "PENDING"})
	runs := must(t, rundir.List, filepath.Join(parent, "runs"))
	if code, out, errs := q.run(parent, "cancel", runs[0].Path()); code != 0 || runs[0].Cluster() != "east" {
		t.Errorf("%d, %s%s, on %q", code, out, errs, runs[0].Cluster())
	}

	id := map[bool]string{true: "501", false: "500"}[must(t, (*rundir.Dir).JobID, runs[0]) == "500"]
	e, _, _ := q.env(parent)
	e.Environ = append(e.Environ, "SLURM_JOB_ID="+id, "SLURM_CLUSTER_NAME=east")
	q.must(runAttemptBegin(t.Context(), e, runs[1].Path()))
	if got := must(t, (*rundir.Dir).JobID, runs[1]); got != id || runs[1].Cluster() != "east" {
		t.Errorf("the job recorded itself as %s on %q", got, runs[1].Cluster())
	}
}

// Commands follow the elements of an array on one cluster, so resume submits them there.
func TestAnArrayStaysOnItsCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.clustersJob(parent, "west,east", "array = \"0-1\"\n")
	if code, out, errs := q.run(parent, "submit", "job.toml"); code != 0 {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	if code, out, errs := q.run(parent, "cancel", "500"); code != 0 {
		t.Fatalf("%d, %s%s", code, out, errs)
	}
	code, out, errs := q.run(parent, "resume", "500", "--set", "slurm.clusters=west")
	const says = `slurm.clusters = "west": elements of an array are resumed on the cluster that it was submitted to (job 500;east)`
	if code != exit.Usage || !strings.Contains(errs, says) {
		t.Errorf("moved: %d, %s%s", code, out, errs)
	}
	if code, out, errs := q.run(parent, "resume", "500"); code != 0 || !strings.HasPrefix(out, "submitted job 501 on cluster east: ") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if calls := q.sbatchCalls(); len(calls) != 2 || calls[1] != "--clusters=east --parsable" {
		t.Errorf("called sbatch with %q", calls)
	}
}

// A condition of Slurm can name only jobs of the same cluster: on another cluster, the same number may be another user's job.
func TestAfterIsOfTheSameCluster(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.clustersJob(parent, "east", "")
	for _, args := range [][]string{{}, {"--after", "500"}, {"--after", "500;east:ok"}} {
		if code, out, errs := q.run(parent, append([]string{"submit", "job.toml"}, args...)...); code != 0 {
			t.Fatalf("%q: %d, %s%s", args, code, out, errs)
		}
	}
	want := []string{
		"--clusters=east --parsable", "--clusters=east --parsable --dependency=afterany:500",
		"--clusters=east --parsable --dependency=afterok:500",
	}
	if calls := q.sbatchCalls(); !slices.Equal(calls, want) {
		t.Errorf("called sbatch with %q, want %q", calls, want)
	}
	q.must(os.WriteFile(filepath.Join(q.dir, "clusters", "east", "jobs", "77"), []byte("PENDING /other\n"), 0o600)) // a job of no run
	for clusters, words := range map[string]map[string]bool{
		"east": {"77": true, "77;east": true, "77;west": false}, "west": {"500": false, "77": false},
		"east,west": {"500": false, "77": false},
	} {
		q.clustersJob(parent, clusters, "")
		for word, fits := range words {
			code, out, errs := q.run(parent, "submit", "job.toml", "--after", word)
			if fits != (code == 0) || !fits && code != exit.Usage {
				t.Errorf("to %s after %s: %d, %s%s", clusters, word, code, out, errs)
			}
		}
	}
}
