package sim_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// parse converts an environment into a map. A name that occurs twice is an error.
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

// leftOut lists the variables of a real agent's task that a pretend one does not get, and the reasons.
var leftOut = map[string]string{
	"SLURM_CONF":               "there is no configuration; the user's own stays for submit",
	"SLURM_GPUS_ON_NODE":       "pretend nodes share this machine's GPUs, and none is given to them",
	"SLURM_JOB_GPUS":           "as SLURM_GPUS_ON_NODE",
	"SLURM_STEP_GPUS":          "as SLURM_GPUS_ON_NODE",
	"SLURM_JOB_ACCOUNT":        "there is no accounting",
	"SLURM_JOB_QOS":            "there is no accounting",
	"SLURM_JOB_GID":            "the process's own group is the truth",
	"SLURM_JOB_UID":            "the process's own user is the truth",
	"SLURM_JOB_USER":           "the process's own user is the truth",
	"SLURM_UMASK":              "the process's own mask is the truth",
	"SLURM_TASK_PID":           "not known before the process starts",
	"SLURM_PRIO_PROCESS":       "the submitter's nice value, not recorded",
	"SLURM_NODE_ALIASES":       `always "(null)", which Slurm means as unset`,
	"SLURM_SRUN_COMM_HOST":     "there is no srun to talk to",
	"SLURM_SRUN_COMM_PORT":     "there is no srun to talk to",
	"SLURM_STEP_LAUNCHER_PORT": "there is no srun to talk to",
	"SLURM_WORKING_CLUSTER":    "there is no controller to talk to",
	"SLURM_SUBMIT_HOST":        "nothing was submitted",
	"SLURM_GPUS_PER_NODE":      "as SLURM_GPUS_ON_NODE",
	"SLURM_JOB_GROUP":          "the process's own group is the truth",
	"SLURM_JOB_START_TIME":     "the end alone is read",
	"SLURMD_DEBUG":             "there is no slurmd",
}

// different lists the variables whose values belong to this machine.
var different = map[string]string{
	"SLURM_CLUSTER_NAME":       "simulate",
	"SLURM_JOB_PARTITION":      "simulate",
	"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
	"SLURM_SUBMIT_DIR":         "/home/ann/digits",
}

// dumps lists the recorded environments that Slurm 22.05 set for all tasks of some steps (../testdata/22.05/README.md), each with the
// allocation that must produce the same.
var dumps = map[string]sim.Allocation{
	"03-agent-per-node":     {JobID: 3, Nodes: named("n[1-4]"), CPUs: []int{4}, TasksPerNode: 1, CPUsPerTask: 4},
	"04-uneven-7tasks":      {JobID: 4, Nodes: named("n[1-4]"), CPUs: []int{4, 1, 1, 1}, Tasks: []int{4, 1, 1, 1}},
	"05-uneven-2x3-1":       {JobID: 5, Nodes: named("n[1-4]"), CPUs: []int{2}, Tasks: []int{2, 2, 2, 1}, TasksPerNode: 2},
	"06-step-subset":        {JobID: 6, Nodes: named("n[1-4]"), CPUs: []int{2}, Step: []int{0, 1}, Tasks: []int{1, 1}, TasksPerNode: 2},
	"07-step-nodelist-n3n4": {JobID: 7, Nodes: named("n[1-4]"), CPUs: []int{2}, Step: []int{2, 3}, Tasks: []int{2, 2}, TasksPerNode: 2},
	"08-cyclic":             {JobID: 8, Nodes: named("n[1-4]"), CPUs: []int{4, 2, 1, 1}, Tasks: []int{4, 2, 1, 1}, Layout: sim.Cyclic},
	"19-array": {
		JobID: 19, Nodes: named("n[1-2]"), CPUs: []int{1}, TasksPerNode: 1,
		Array: &sim.Element{JobID: 19, Index: 7, Array: slurm.Array{Indices: []int{3, 5, 7}, Limit: 1}},
	},
	"29-hetjob-one-world": {
		JobID: 30, JobName: "het.sh", Nodes: named("n[1-3]"), CPUs: []int{1, 2, 2}, Tasks: []int{1, 2, 2},
		Components: []sim.Component{{Nodes: 1}, {Nodes: 2, TasksPerNode: 2}},
	},
	"26-direct-srun": {JobID: 28, JobName: "envdump.sh", Nodes: named("n[1-3]"), CPUs: []int{2}, Tasks: []int{2, 2, 2}, TasksPerNode: 2},
	"32-odd-node-names": {JobID: 3, JobName: "envdump.sh", Nodes: named("gpu001-ib0,gpu003-ib0,login,n[9-10],rack0node[00-01],rack1node00"),
		CPUs: []int{1}},
}

// direct lists the dumps of an srun that was called outside of any job. It sets the same variables, except that it names the layout only if
// -m requests one (checked again on a cluster of 22.05.8, with and without -m).
var direct = map[string]bool{"26-direct-srun": true, "32-odd-node-names": true}

// ofComponent matches the end of a variable's name that describes one component of a heterogeneous job. In other jobs, Slurm 22.05 sets
// some of these variables by mistake.
var ofComponent = regexp.MustCompile(`_(HET|PACK)_GROUP_[0-9]+$`)

func named(hostlist string) []sim.Node {
	nodes, err := sim.NamedNodes(hostlist)
	if err != nil {
		panic(err)
	}
	return nodes
}

// TestEnvironAgreesWithSlurm compares each name and value with what Slurm 22.05 set for each task.
func TestEnvironAgreesWithSlurm(t *testing.T) {
	for folder, pretend := range dumps {
		if pretend.JobName == "" {
			pretend.JobName = "shape.sh"
		}
		pretend.WorkDir = "/home/ann/digits"
		if err := pretend.Validate(); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		files, err := filepath.Glob(filepath.Join("..", "testdata", "22.05", "env", folder, "task-*.env"))
		if err != nil || len(files) != len(pretend.StepTasks()) {
			t.Fatalf("%s: %d dumps for %d tasks, %v", folder, len(files), len(pretend.StepTasks()), err)
		}
		for proc, file := range files {
			t.Run(folder+"/"+filepath.Base(file),
				func(t *testing.T) { compare(t, parse(t, pretend.Environ(pretend.StepTasks()[proc])), file) })
		}
	}
}

// newer lists the recorded environments that Slurm 25.11 set for one task of some steps (testdata/25.11/README.md), each with the
// allocation that must produce the same.
var newer = map[string]sim.Allocation{
	"b01.task3": {JobID: 10, Nodes: named("n[2-3]"), CPUs: []int{2}, Tasks: []int{2, 2}, TasksPerNode: 2},
	"b02.task4": {JobID: 11, Nodes: named("n[1-3]"), CPUs: []int{3, 1, 1}, Tasks: []int{3, 1, 1}},
	"b03.task1": {JobID: 12, Nodes: named("n[1-2]"), CPUs: []int{4}, TasksPerNode: 1, CPUsPerTask: 4},
	"b04.task0": {JobID: 14, Nodes: named("n1"), CPUs: []int{1},
		Array: &sim.Element{JobID: 13, Index: 1, Array: slurm.Array{Indices: []int{1, 2}}}},
	"h01.task1": {JobID: 16, JobName: "het.sh", Nodes: named("n[1-3]"), CPUs: []int{1},
		Components: []sim.Component{{Nodes: 1}, {Nodes: 2}}},
	"s01.task2": {JobID: 36, JobName: "interactive", Nodes: named("n[1-3]"), CPUs: []int{3, 1, 1}, TasksPerNode: 1},
}

// TestEnvironAgreesWithSlurm25_11 compares each name and value with what Slurm 25.11 set. That release sets the end time for every job.
func TestEnvironAgreesWithSlurm25_11(t *testing.T) {
	for dump, pretend := range newer {
		t.Run(dump, func(t *testing.T) {
			file := filepath.Join("testdata", "25.11", dump+".env")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			recorded := parse(t, strings.Split(strings.TrimSpace(string(data)), "\n"))
			end, err := strconv.ParseInt(recorded["SLURM_JOB_END_TIME"], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			pretend.Release, pretend.WorkDir, pretend.EndTime = sim.Slurm2511, "/home/ann/digits", time.Unix(end, 0)
			if pretend.JobName == "" {
				pretend.JobName = "batch.sh"
			}
			if err := pretend.Validate(); err != nil {
				t.Fatal(err)
			}
			proc, err := strconv.Atoi(recorded["SLURM_PROCID"])
			if err != nil || proc >= len(pretend.StepTasks()) {
				t.Fatalf("process %d of %d, %v", proc, len(pretend.StepTasks()), err)
			}
			compare(t, parse(t, pretend.Environ(pretend.StepTasks()[proc])), file)
		})
	}
}

// The batch script of a heterogeneous job gets the variables that Slurm gave it.
func TestHeterogeneousScriptAgreesWithSlurm(t *testing.T) {
	pretend := dumps["29-hetjob-one-world"]
	pretend.WorkDir = "/home/ann/digits"
	data, err := os.ReadFile(filepath.Join("..", "testdata", "22.05", "env", "28-hetjob", "batch.env"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := parse(t, strings.Split(strings.TrimSpace(string(data)), "\n"))
	for name, got := range parse(t, pretend.ScriptEnviron()) {
		want, set := recorded[name]
		if own, ok := different[ofComponent.ReplaceAllString(name, "")]; ok {
			want = own
		}
		if !set || got != want {
			t.Errorf("%s=%q, want %q (set: %v)", name, got, want, set)
		}
	}
}

// Lists of nodes are in the order of names. Ranks and nodes are in the order of components, as Slurm 22.05.8 numbers them if component 0 is
// n3.
func TestHeterogeneousRanksGoByComponent(t *testing.T) {
	nodes := sim.PretendNodes(3)
	for i, name := range []string{"n3", "n1", "n2"} {
		nodes[i].Name = name
	}
	pretend := sim.Allocation{
		JobID: 130, Nodes: nodes, Nodelist: "n3,n[1-2]", CPUs: []int{4, 2, 2}, Tasks: []int{1, 2, 2}, Layout: sim.Cyclic,
		Components: []sim.Component{{Nodes: 1, CPUsPerTask: 4}, {Nodes: 2, TasksPerNode: 2}},
	}
	if err := pretend.Validate(); err != nil {
		t.Fatal(err)
	}
	env := parse(t, pretend.Environ(pretend.StepTasks()[4]))
	for name, want := range map[string]string{
		"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
		"SLURM_JOB_CPUS_PER_NODE":        "2(x2),4",
		"SLURM_JOB_NODELIST_HET_GROUP_0": "n3", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]", "SLURM_CPUS_PER_TASK_HET_GROUP_0": "4",
		"SLURMD_NODENAME": "n2", "SLURM_NODEID": "2", "SLURM_LOCALID": "1", "SLURM_GTIDS": "2,4", "SLURM_CPUS_ON_NODE": "2",
	} {
		if env[name] != want {
			t.Errorf("%s=%q, want %q", name, env[name], want)
		}
	}
	readBack(t, pretend, 3)
}

// The tasks of a requeued job have one additional variable, as rqenv.0 and rqenv.1 of step 31-restarted show.
func TestRestartedJobAgreesWithSlurm(t *testing.T) {
	first := sim.Allocation{JobID: 31, Nodes: named("n1")}
	again := first
	again.Restarts = 1
	before, after := parse(t, first.Environ(first.StepTasks()[0])), parse(t, again.Environ(again.StepTasks()[0]))
	if after["SLURM_RESTART_COUNT"] != "1" || len(after) != len(before)+1 {
		t.Errorf("the restarted run has %q, and %d variables where the first has %d", after["SLURM_RESTART_COUNT"], len(after), len(before))
	}
}

// compare compares env with what Slurm set.
func compare(t *testing.T, env map[string]string, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	heterogeneous := strings.Contains(string(data), "\nSLURM_HET_SIZE=")
	for line := range strings.Lines(string(data)) {
		name, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		whole := ofComponent.ReplaceAllString(name, "")
		if !strings.HasPrefix(name, "SLURM") || name != whole && !heterogeneous {
			continue
		}
		got, set := env[name]
		delete(env, name)
		if _, ok := leftOut[whole]; ok {
			if set {
				t.Errorf("%s is set, and listed as left out", name)
			}
			continue
		}
		if own, ok := different[whole]; ok {
			want = own
		}
		if heterogeneous && (name == "SLURM_STEP_ID" || name == "SLURM_STEPID") {
			want = "0" // it was the third step of its script, and a pretend job has only one
		}
		if !set || got != want {
			t.Errorf("%s=%q (set: %v), want %q", name, got, set, want)
		}
	}
	delete(env, slurm.SimAddresses)
	if direct[filepath.Base(filepath.Dir(file))] {
		delete(env, "SLURM_DISTRIBUTION")
	}
	for name := range env {
		t.Errorf("%s is set, and Slurm does not set it", name)
	}
}

// FromEnviron, which reads real steps, also reads pretend ones of any shape.
func TestFromEnvironReadsASimulation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		pretend := sim.Allocation{JobID: 7, JobName: "mnist", Nodes: sim.PretendNodes(1 + random.IntN(20)), Restarts: random.IntN(3),
			CPUs: []int{2}, WorkDir: "/w"}
		if random.IntN(2) == 0 {
			pretend.Step = []int{}
			for i := range pretend.Nodes {
				if random.IntN(2) == 0 || i == len(pretend.Nodes)-1 {
					pretend.Step = append(pretend.Step, i)
				}
			}
		}
		nodes := len(pretend.Nodes)
		if pretend.Step != nil {
			nodes = len(pretend.Step)
		}
		if random.IntN(2) == 0 {
			for range nodes {
				pretend.Tasks = append(pretend.Tasks, 1+random.IntN(4))
			}
			pretend.Layout = []sim.Layout{"", sim.Block, sim.Cyclic}[random.IntN(3)]
		}
		if first := random.IntN(nodes); pretend.Step == nil && first > 0 {
			pretend.Components = []sim.Component{{Nodes: first}, {Nodes: nodes - first}}
			slices.Reverse(pretend.Nodes)
		}
		if err := pretend.Validate(); err != nil {
			t.Fatal(err)
		}
		readBack(t, pretend, nodes)
	}
}

// readBack compares what slurm.FromEnviron reads from each task's variables with the places from which they were made.
func readBack(t *testing.T, pretend sim.Allocation, nodes int) {
	t.Helper()
	places := pretend.StepTasks()
	for _, p := range places {
		env := parse(t, pretend.Environ(p))
		a, err := slurm.FromEnviron(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err != nil {
			t.Fatalf("%+v: %v", pretend, err)
		}
		want := slurm.Rank{Rank: p.Proc, WorldSize: len(places), LocalRank: p.Local, LocalWorldSize: len(p.Procs),
			NodeRank: p.Node, Nodes: nodes}
		wantCPUs := "2"
		if len(pretend.CPUs) > 1 {
			wantCPUs = strconv.Itoa(pretend.CPUs[pretend.StepNode(p.Node)])
		}
		if a.Rank() != want || !a.InStep() || a.JobID != strconv.Itoa(pretend.JobID) || a.StepID != "0" || a.Restarts != pretend.Restarts ||
			env["SLURM_CPUS_ON_NODE"] != wantCPUs {
			t.Fatalf("%+v: %+v, want %+v", pretend, a, want)
		}
		for j := range nodes {
			if node := pretend.Nodes[pretend.StepNode(j)]; a.Nodes[j] != node.Name || a.Address(j) != node.Address {
				t.Fatalf("node %d is %s at %s, want %+v", j, a.Nodes[j], a.Address(j), node)
			}
		}
	}
}

// A list with several brackets is passed on as it was written, and means the same nodes.
func TestNodelistStaysAsWritten(t *testing.T) {
	list := "rack[0-1]n[01-02]"
	pretend := sim.Allocation{JobID: 7, Nodes: named(list), Nodelist: list, CPUs: []int{2}}
	if env := parse(t, pretend.Environ(pretend.StepTasks()[2])); env["SLURM_JOB_NODELIST"] != list || env["SLURMD_NODENAME"] != "rack1n01" {
		t.Errorf("the list is %s, the third node %s", env["SLURM_JOB_NODELIST"], env["SLURMD_NODENAME"])
	}
	readBack(t, pretend, 4)
}

// On the first run Slurm sets no restart count. Variables for CPUs are not set if their number is unknown, and the end time is not set if
// the job has none.
func TestFirstRunHasNoRestartCount(t *testing.T) {
	a := sim.Allocation{JobID: 1, Nodes: sim.PretendNodes(1)}
	env := parse(t, a.Environ(a.StepTasks()[0]))
	for _, name := range []string{"SLURM_RESTART_COUNT", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK",
		"SLURM_JOB_END_TIME", "SLURM_ARRAY_JOB_ID"} {
		if value, set := env[name]; set {
			t.Errorf("%s=%q", name, value)
		}
	}
	a.EndTime = time.Unix(1_800_000_000, 0)
	if got := parse(t, a.Environ(a.StepTasks()[0]))["SLURM_JOB_END_TIME"]; got != "1800000000" {
		t.Errorf("SLURM_JOB_END_TIME=%q", got)
	}
}

// Scrubbing the environment of a simulation leaves none of its variables. A simulation inside a job or another simulation relies on that.
func TestScrubLeavesNothingOfASimulation(t *testing.T) {
	a := dumps["19-array"]
	a.Restarts, a.EndTime = 2, time.Unix(1_800_000_000, 0)
	kept, _ := slurm.Scrub(a.Environ(a.StepTasks()[1]))
	if len(kept) != 0 {
		t.Errorf("scrubbing leaves %q", kept)
	}
}
