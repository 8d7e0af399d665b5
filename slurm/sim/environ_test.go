package sim_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testenv"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// parse turns an environment into a map; a name that comes twice is an error.
func parse(t *testing.T, environ []string) map[string]string {
	t.Helper()
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if _, twice := env[name]; twice || !ok {
			t.Fatalf("%q: twice, or no variable", entry)
		}
		env[name] = value
	}
	return env
}

// leftOut are the variables of a real agent's task that a pretend one does not get, and why.
var leftOut = map[string]string{
	"SLURM_CONF":                           "there is no configuration; the user's own stays for submit",
	"SLURM_GPUS_ON_NODE":                   "pretend nodes share this machine's GPUs, and none is given to them",
	"SLURM_JOB_GPUS":                       "as SLURM_GPUS_ON_NODE",
	"SLURM_STEP_GPUS":                      "as SLURM_GPUS_ON_NODE",
	"SLURM_JOB_ACCOUNT":                    "there is no accounting",
	"SLURM_JOB_QOS":                        "there is no accounting",
	"SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "a left-over of Slurm 22.05 in jobs that are not heterogeneous",
	"SLURM_JOB_GID":                        "the process's own group is the truth",
	"SLURM_JOB_UID":                        "the process's own user is the truth",
	"SLURM_JOB_USER":                       "the process's own user is the truth",
	"SLURM_UMASK":                          "the process's own mask is the truth",
	"SLURM_TASK_PID":                       "not known before the process starts",
	"SLURM_PRIO_PROCESS":                   "the submitter's nice value, not recorded",
	"SLURM_NODE_ALIASES":                   `always "(null)", which Slurm means as unset`,
	"SLURM_SRUN_COMM_HOST":                 "there is no srun to talk to",
	"SLURM_SRUN_COMM_PORT":                 "there is no srun to talk to",
	"SLURM_STEP_LAUNCHER_PORT":             "there is no srun to talk to",
	"SLURM_WORKING_CLUSTER":                "there is no controller to talk to",
	"SLURM_SUBMIT_HOST":                    "nothing was submitted",
}

// different are the variables whose values are this machine's own.
var different = map[string]string{
	"SLURM_CLUSTER_NAME":       "simulate",
	"SLURM_JOB_PARTITION":      "simulate",
	"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
	"SLURM_SUBMIT_DIR":         "/home/ann/digits",
}

// TestEnvironAgainstSlurm compares name by name and value by value with what Slurm 22.05 set for
// four agents. The real nodes are n1 to n4.
func TestEnvironAgainstSlurm(t *testing.T) {
	pretend := sim.Allocation{JobID: 3, JobName: "shape.sh", Nodes: 4, CPUs: 4, WorkDir: "/home/ann/digits"}
	names := regexp.MustCompile(`node(\d|\[)`)
	for i, file := range []string{"task-00.env", "task-01.env", "task-02.env", "task-03.env"} {
		data, err := os.ReadFile(testenv.Shared(t, "slurm-corpus", "env", "03-agent-per-node", file))
		if err != nil {
			t.Fatal(err)
		}
		env := parse(t, pretend.Environ(i))
		for line := range strings.Lines(string(data)) {
			name, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			if !strings.HasPrefix(name, "SLURM") {
				continue
			}
			got, set := env[name]
			delete(env, name)
			if _, ok := leftOut[name]; ok {
				if set {
					t.Errorf("%s is set, and listed as left out", name)
				}
				continue
			}
			if own, ok := different[name]; ok {
				want = own
			}
			if got = names.ReplaceAllString(got, "n$1"); !set || got != want {
				t.Errorf("task %d: %s=%q (set: %v), want %q", i, name, got, set, want)
			}
		}
		delete(env, slurm.SimAddresses)
		for name := range env {
			t.Errorf("task %d: %s is set, and Slurm does not set it", i, name)
		}
	}
}

// TestFromEnviron: what reads a real step reads a pretend one, whatever its size.
func TestFromEnviron(t *testing.T) {
	for nodes := 1; nodes <= sim.MaxNodes; nodes++ {
		pretend := sim.Allocation{JobID: 7, JobName: "mnist", Nodes: nodes, Restarts: nodes - 1, CPUs: 2, WorkDir: "/w"}
		for _, i := range slices.Compact([]int{0, nodes / 2, nodes - 1}) {
			env := parse(t, pretend.Environ(i))
			a, err := slurm.FromEnviron(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
			if err != nil {
				t.Fatalf("node %d of %d: %v", i, nodes, err)
			}
			want := slurm.Rank{Rank: i, WorldSize: nodes, LocalWorldSize: 1, NodeRank: i, Nodes: nodes}
			if a.Rank() != want || !a.InStep() || a.TaskMode() {
				t.Errorf("node %d of %d: %+v, want %+v", i, nodes, a.Rank(), want)
			}
			if a.JobID != "7" || a.StepID != "0" || a.Restarts != nodes-1 || a.CPUsOnNode != 2 {
				t.Errorf("node %d of %d: job %s, step %s, restart %d, %d CPUs", i, nodes, a.JobID, a.StepID, a.Restarts, a.CPUsOnNode)
			}
			for j := range nodes {
				if a.Nodes[j] != pretend.Name(j) || a.Address(j) != pretend.Address(j) {
					t.Fatalf("node %d of %d: %s at %s, want %s at %s", j, nodes, a.Nodes[j], a.Address(j), pretend.Name(j), pretend.Address(j))
				}
			}
		}
	}
}

// TestFirstRun: Slurm sets no restart count then, and no CPUs are claimed where none are known.
func TestFirstRun(t *testing.T) {
	env := parse(t, sim.Allocation{JobID: 1, Nodes: 1}.Environ(0))
	for _, name := range []string{"SLURM_RESTART_COUNT", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK"} {
		if value, set := env[name]; set {
			t.Errorf("%s=%q", name, value)
		}
	}
}

// TestScrubbed: a simulation inside a job or another simulation leaves nothing of the outer one.
func TestScrubbed(t *testing.T) {
	kept, _ := slurm.Scrub(sim.Allocation{JobID: 1, Nodes: 3, Restarts: 2, CPUs: 1}.Environ(1))
	if len(kept) != 0 {
		t.Errorf("scrubbing leaves %q", kept)
	}
}
