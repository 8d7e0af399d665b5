package slurm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

// dumps holds the variables of batch scripts and tasks of a real Slurm 22.05, with a folder for each step: see testdata/22.05/README.md.
var dumps = filepath.Join("testdata", "22.05", "env")

// envFile is one dump of the corpus: variables by name.
type envFile map[string]string

func readEnvFile(t *testing.T, path string) envFile {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	env := envFile{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			env[name] = value
		}
	}
	return env
}

func (e envFile) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func (e envFile) number(t *testing.T, name string) int {
	t.Helper()
	n, err := strconv.Atoi(e[name])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// steps lists the steps of dumps, with the numbers of nodes and tasks that a person read in their COMMAND.
var steps = map[string]struct{ nodes, tasks int }{
	"01-N4-n8-tpn2":         {4, 8},
	"02-N4-n8-tpn2-gpu2":    {4, 8},
	"03-agent-per-node":     {4, 4},
	"04-uneven-7tasks":      {4, 7},
	"05-uneven-2x3-1":       {4, 7},
	"06-step-subset":        {2, 2},
	"07-step-nodelist-n3n4": {2, 4},
	"08-cyclic":             {4, 8},
	"09-gpus-per-node":      {2, 4},
	"10-gpus-total":         {4, 8},
	"11-gpus-per-task":      {2, 4},
	"12-gpu-bind-single":    {2, 4},
	"13-single-task":        {1, 1},
	"14-mpi-none":           {4, 8},
	"15-mpi-pmi2":           {4, 8},
	"16-nodelist-gap":       {3, 3},
	"17-overcommit":         {2, 16},
	"18-exclusive-mem":      {2, 8},
	"19-array":              {2, 2},
	"20-export-none":        {2, 2},
	"21-export-var":         {2, 2},
	"22-arbitrary":          {4, 8},
	"23-ntasks-per-gpu":     {2, 4},
	"24-cpus-per-task":      {2, 4},
	"25-cpus-per-task-srun": {2, 4},
	"26-direct-srun":        {3, 6},
	"27-salloc":             {2, 3},
	"28-hetjob/g0":          {1, 1},
	"28-hetjob/g1":          {2, 4},
	"29-hetjob-one-world":   {3, 5}, // both groups of 28
	"32-odd-node-names":     {8, 8},
}

// TestFromEnvironReadsEveryTask compares each task of each step of the corpus with what its COMMAND asked for, and with the other tasks of
// the same step.
func TestFromEnvironReadsEveryTask(t *testing.T) {
	for step, want := range steps {
		t.Run(step, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(dumps, step, "task-*.env"))
			if err != nil || len(files) != want.tasks {
				t.Fatalf("%d files of tasks, %v; COMMAND makes %d", len(files), err, want.tasks)
			}
			var tasks []envFile
			for _, file := range files {
				tasks = append(tasks, readEnvFile(t, file))
			}
			local := map[string][]int{} // node name -> local ranks
			for _, env := range tasks {
				a := checkTask(t, env, tasks)
				if len(a.Nodes) != want.nodes {
					t.Errorf("nodes %q; COMMAND asks for %d", a.Nodes, want.nodes)
				}
				local[a.NodeName()] = append(local[a.NodeName()], a.LocalID)
			}
			if len(local) != want.nodes {
				t.Errorf("tasks on %d nodes; COMMAND asks for %d", len(local), want.nodes)
			}
			for node, ranks := range local {
				slices.Sort(ranks)
				for i, rank := range ranks {
					if i != rank {
						t.Errorf("local ranks on %s are %v", node, ranks)
					}
				}
			}
		})
	}
}

// checkTask compares one task of a step with the dumps of all its tasks.
func checkTask(t *testing.T, env envFile, tasks []envFile) *slurm.Allocation {
	t.Helper()
	a, err := slurm.FromEnviron(env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.CheckLayout(); err != nil {
		t.Error(err)
	}
	procID := env.number(t, "SLURM_PROCID")
	if tasks[procID]["SLURM_PROCID"] != env["SLURM_PROCID"] {
		t.Fatalf("rank %d is not in the file of its number", procID)
	}
	var here []string // ranks on this node, by the other tasks' dumps
	nodes := map[string]bool{}
	crowded := false
	for _, other := range tasks {
		if other["SLURMD_NODENAME"] == env["SLURMD_NODENAME"] {
			here = append(here, other["SLURM_PROCID"])
		}
		crowded = crowded || nodes[other["SLURMD_NODENAME"]]
		nodes[other["SLURMD_NODENAME"]] = true
	}
	if strings.Join(here, ",") != env["SLURM_GTIDS"] {
		t.Errorf("rank %d: ranks %v are on its node, but SLURM_GTIDS=%s", procID, here, env["SLURM_GTIDS"])
	}
	want := slurm.Rank{
		Rank: procID, WorldSize: len(tasks),
		LocalRank: slices.Index(here, env["SLURM_PROCID"]), LocalWorldSize: len(here),
		NodeRank: env.number(t, "SLURM_NODEID"), Nodes: len(nodes),
	}
	if got := a.Rank(); got != want {
		t.Errorf("rank %d: %+v, want %+v", procID, got, want)
	}
	if a.NodeName() != env["SLURMD_NODENAME"] || a.Address(a.NodeRank) != a.NodeName() {
		t.Errorf("rank %d: node %q, address %q; want %q", procID, a.NodeName(), a.Address(a.NodeRank), env["SLURMD_NODENAME"])
	}
	// hostname(1) prints the node's name if each node is a host. "vm" is a host that had all nodes.
	if host := env["HOSTNAME_CMD"]; host != a.NodeName() && host != "vm" {
		t.Errorf("rank %d: node %q, hostname %q", procID, a.NodeName(), host)
	}
	if !a.InStep() || a.TaskMode() != crowded {
		t.Errorf("rank %d: in a step %v, task mode %v; want true, %v", procID, a.InStep(), a.TaskMode(), crowded)
	}
	if key := fmt.Sprintf("lab/%s.%s.0", env["SLURM_JOB_ID"], env["SLURM_STEP_ID"]); a.Key() != key {
		t.Errorf("rank %d: key %q, want %q", procID, a.Key(), key)
	}
	return a
}

// The table steps has each step of the corpus.
func TestStepsOfTheCorpusAreAllThere(t *testing.T) {
	for _, pattern := range []string{"*/task-00.env", "*/*/task-00.env"} {
		files, err := filepath.Glob(filepath.Join(dumps, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			step, err := filepath.Rel(dumps, filepath.Dir(file))
			if _, known := steps[step]; err != nil || !known {
				t.Errorf("step %s is not tested, %v", step, err)
			}
		}
	}
}

// TestFromEnvironReadsBatchScripts reads the job from all batch scripts of the corpus, which are not in a step.
func TestFromEnvironReadsBatchScripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(dumps, "*", "batch.env"))
	if err != nil || len(files) < 26 {
		t.Fatalf("%d batch scripts, %v", len(files), err)
	}
	for _, file := range files {
		name, env := filepath.Base(filepath.Dir(file)), readEnvFile(t, file)
		a, err := slurm.FromEnviron(env.lookup)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a.InStep() || a.TaskMode() {
			t.Errorf("%s: taken for a step", name)
		}
		if len(a.Nodes) != env.number(t, "SLURM_JOB_NUM_NODES") || a.NodeName() != env["SLURMD_NODENAME"] ||
			a.Tasks != env.number(t, "SLURM_NTASKS") {
			t.Errorf("%s: nodes %q, this one %q, %d tasks", name, a.Nodes, a.NodeName(), a.Tasks)
		}
		// The only script in which Slurm contradicts itself: SLURM_NTASKS=7, SLURM_TASKS_PER_NODE=2(x4).
		if contradictory := name == "05-uneven-2x3-1"; contradictory != (a.TasksPerNode == nil) {
			t.Errorf("%s: tasks per node %v", name, a.TasksPerNode)
		}
		if alone := (slurm.Rank{WorldSize: 1, LocalWorldSize: 1, Nodes: 1}); a.Rank() != alone {
			t.Errorf("%s: a batch script has the rank %+v", name, a.Rank())
		}
	}
}

func TestFromEnvironReadsSalloc(t *testing.T) {
	env := readEnvFile(t, filepath.Join(dumps, "27-salloc", "salloc.env"))
	a, err := slurm.FromEnviron(env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	if a.InStep() || a.NodeRank != -1 || a.NodeName() != "" {
		t.Errorf("salloc's shell on the login host: step %q, node %d %q", a.StepID, a.NodeRank, a.NodeName())
	}
	if !slices.Equal(a.Nodes, []string{"n1", "n2"}) || a.Tasks != 3 || !slices.Equal(a.TasksPerNode, []int{2, 1}) {
		t.Errorf("nodes %q, %d tasks %v; want n1 n2, 3 tasks 2,1", a.Nodes, a.Tasks, a.TasksPerNode)
	}
}

// The same job has another key after a requeue.
func TestRestartHasItsOwnKey(t *testing.T) {
	for restarts, want := range []string{"lab/116..0", "lab/116..1"} {
		env := readEnvFile(t, filepath.Join(dumps, "31-restarted", fmt.Sprint("rqenv.", restarts)))
		a, err := slurm.FromEnviron(env.lookup)
		if err != nil || a.Restarts != restarts || a.Key() != want {
			t.Errorf("run %d: %d restarts, key %q, %v; want %q", restarts, a.Restarts, a.Key(), err, want)
		}
	}
}
