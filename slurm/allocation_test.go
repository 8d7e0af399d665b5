package slurm_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

// uneven is task 2 of a step of three tasks on two of the job's four nodes.
func uneven() envFile {
	return envFile{
		"SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3",
		"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1",
		"SLURM_STEP_NODELIST": "n[3-4]", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "2,1",
		"SLURM_NODEID": "1", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n4",
		"SLURM_NTASKS_PER_NODE": "2", // stale, as always
	}
}

func (e envFile) with(changes envFile) envFile {
	all := maps.Clone(e)
	maps.Copy(all, changes)
	return all
}

func TestFromEnviron(t *testing.T) {
	for name, env := range map[string]envFile{
		"as Slurm sets it": uneven(),
		"job's counts":     uneven().with(envFile{"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_STEP_NUM_TASKS": "(null)"}),
		"no total":         uneven().with(envFile{"SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS": ""}),
		"job's nodes":      uneven().with(envFile{"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": "n3,n4"}),
		"old alias":        uneven().with(envFile{"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": "", "SLURM_NODELIST": "n3,n4"}),
		"stale job":        uneven().with(envFile{"SLURM_NTASKS": "99", "SLURM_TASKS_PER_NODE": "9(x9)"}), // srun --preserve-env
		"no node name":     uneven().with(envFile{"SLURMD_NODENAME": ""}),
	} {
		a, err := slurm.FromEnviron(env.lookup)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := slurm.Rank{Rank: 2, WorldSize: 3, LocalRank: 0, LocalWorldSize: 1, NodeRank: 1, Nodes: 2}
		if a.Rank() != want || a.NodeName() != "n4" || a.Address(0) != "n3" || !a.TaskMode() || a.Key() != "lab/7.3.0" {
			t.Errorf("%s: %+v, node %s, key %s; want %+v", name, a.Rank(), a.NodeName(), a.Key(), want)
		}
	}
}

func TestFromEnvironOutsideAJobFails(t *testing.T) {
	for _, env := range []envFile{{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "(null)"}, {"SLURM_CONF": "/etc/slurm.conf", "SLURM_STEP_ID": "0"}} {
		a, err := slurm.FromEnviron(env.lookup)
		if !errors.Is(err, slurm.ErrNotInSlurm) || !strings.Contains(err.Error(), "SLURM_JOB_ID") {
			t.Errorf("%v: %+v, %v; want ErrNotInSlurm", env, a, err)
		}
	}
}

// TestFromEnvironRefuses: what contradicts itself is told with the variables' names and values.
func TestFromEnvironRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change envFile
		want   string
	}{
		"job id":               {envFile{"SLURM_JOB_ID": "7;rm"}, `SLURM_JOB_ID="7;rm"`},
		"negative step":        {envFile{"SLURM_STEP_ID": "-1"}, `SLURM_STEP_ID="-1"`},
		"restarts":             {envFile{"SLURM_RESTART_COUNT": "-1"}, "SLURM_RESTART_COUNT"},
		"no nodelist":          {envFile{"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "SLURM_STEP_NODELIST or SLURM_JOB_NODELIST or SLURM_NODELIST is not set"},
		"empty nodelist":       {envFile{"SLURM_STEP_NODELIST": " ,"}, "names no node"},
		"bad nodelist":         {envFile{"SLURM_STEP_NODELIST": "n[3-"}, "SLURM_STEP_NODELIST: hostlist"},
		"hostile nodelist":     {envFile{"SLURM_STEP_NODELIST": "n[0-999999999]"}, "SLURM_STEP_NODELIST: hostlist"},
		"job's longer list":    {envFile{"SLURM_STEP_NODELIST": ""}, `SLURM_JOB_NODELIST="n[1-4]" names 4 nodes, but SLURM_STEP_TASKS_PER_NODE="2,1" counts the tasks of 2`},
		"longer counts":        {envFile{"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, `SLURM_STEP_NODELIST="n[3-4]" names 2 nodes, but SLURM_STEP_TASKS_PER_NODE="1(x3)" counts the tasks of 3`},
		"no counts":            {envFile{"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_TASKS_PER_NODE": ""}, "SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE is not set"},
		"bad counts":           {envFile{"SLURM_STEP_TASKS_PER_NODE": "2;1"}, "SLURM_STEP_TASKS_PER_NODE: counts"},
		"hostile counts":       {envFile{"SLURM_STEP_TASKS_PER_NODE": "1(x999999999)"}, "SLURM_STEP_TASKS_PER_NODE: counts"},
		"total":                {envFile{"SLURM_STEP_NUM_TASKS": "4"}, `SLURM_STEP_NUM_TASKS="4", but the counts in SLURM_STEP_TASKS_PER_NODE="2,1" make 3`},
		"total is no number":   {envFile{"SLURM_STEP_NUM_TASKS": "three"}, "SLURM_STEP_NUM_TASKS"},
		"node without a task":  {envFile{"SLURM_STEP_TASKS_PER_NODE": "3,0"}, "n4"},
		"node named twice":     {envFile{"SLURM_STEP_NODELIST": "n4,n4"}, "n4 twice"},
		"node out of range":    {envFile{"SLURM_NODEID": "2"}, `SLURM_NODEID is 2, but SLURM_STEP_NODELIST="n[3-4]" names only 2 nodes`},
		"no node":              {envFile{"SLURM_NODEID": ""}, "SLURM_NODEID is not set"},
		"rank out of range":    {envFile{"SLURM_PROCID": "3"}, "SLURM_PROCID is 3"},
		"no rank":              {envFile{"SLURM_PROCID": "(null)"}, "SLURM_PROCID is not set"},
		"hostile rank":         {envFile{"SLURM_PROCID": "4294967295"}, "SLURM_PROCID"},
		"local out of range":   {envFile{"SLURM_LOCALID": "1"}, `SLURM_LOCALID is 1, but SLURM_STEP_TASKS_PER_NODE="2,1" makes only 1 for node n4`},
		"no local rank":        {envFile{"SLURM_LOCALID": ""}, "SLURM_LOCALID is not set"},
		"another node's name":  {envFile{"SLURMD_NODENAME": "n1"}, `SLURMD_NODENAME="n1", but SLURM_NODEID is 1 and that node of SLURM_STEP_NODELIST="n[3-4]" is n4`},
		"too few addresses":    {envFile{slurm.SimAddresses: "127.0.0.1"}, "1 addresses for 2 nodes"},
		"address with a name":  {envFile{slurm.SimAddresses: "127.0.0.1,evil.example"}, `"evil.example" is not an IP address`},
		"batch: node":          {envFile{"SLURM_STEP_ID": "", "SLURM_NODEID": "4"}, `SLURM_NODEID is 4, but SLURM_JOB_NODELIST="n[1-4]" names only 4 nodes`},
		"batch: no nodelist":   {envFile{"SLURM_STEP_ID": "", "SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST or SLURM_NODELIST is not set"},
		"batch: hostile":       {envFile{"SLURM_STEP_ID": "", "SLURM_TASKS_PER_NODE": "1(x999999999)"}, "SLURM_TASKS_PER_NODE: counts"},
		"batch: total":         {envFile{"SLURM_STEP_ID": "", "SLURM_NTASKS": "many"}, "SLURM_NTASKS"},
		"batch: node is words": {envFile{"SLURM_STEP_ID": "", "SLURM_NODEID": "none"}, "SLURM_NODEID"},
	} {
		a, err := slurm.FromEnviron(uneven().with(tt.change).lookup)
		switch {
		case err == nil:
			t.Errorf("%s: %+v, want an error", name, a)
		case !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v; want %q in it", name, err, tt.want)
		case errors.Is(err, slurm.ErrNotInSlurm):
			t.Errorf("%s: %v is taken for no job at all", name, err)
		}
	}
}

// TestCheckLayout: rank 0 is on the second node. Two tasks can know it, that one and the first of the first node.
func TestCheckLayout(t *testing.T) {
	for want, change := range map[string]envFile{
		"":  {},
		" ": {"SLURM_NODEID": "0", "SLURM_LOCALID": "1", "SLURM_PROCID": "2", "SLURMD_NODENAME": ""},
		"SLURM_PROCID is 0 on n4, but the other tasks look for rank 0 on n3":                       {"SLURM_PROCID": "0"},
		"the first task on n3, the step's first node, has SLURM_PROCID 1, but the others look for": {"SLURM_NODEID": "0", "SLURM_PROCID": "1", "SLURMD_NODENAME": ""},
		"  ": {"SLURM_STEP_ID": "", "SLURM_PROCID": "1", "SLURM_NODEID": "0"},
	} {
		a, err := slurm.FromEnviron(uneven().with(change).lookup)
		if err != nil {
			t.Fatal(err)
		}
		want = strings.TrimSpace(want)
		if err := a.CheckLayout(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", change, err, want)
		}
	}
}

// Salloc's shell on a compute node sees a step of one task, with a reserved
// id. The values are those of a real one.
func TestInteractiveStepIsNoStep(t *testing.T) {
	a, err := slurm.FromEnviron(envFile{
		"SLURM_CLUSTER_NAME": "arc", "SLURM_JOB_ID": "1731344", "SLURM_STEP_ID": "4294967290",
		"SLURM_JOB_NODELIST": "g[1-2]", "SLURM_TASKS_PER_NODE": "8(x2)",
		"SLURM_STEP_NODELIST": "g1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1",
		"SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "g1",
	}.lookup)
	if err != nil {
		t.Fatal(err)
	}
	if a.InStep() || !slices.Equal(a.Nodes, []string{"g1", "g2"}) || a.Tasks != 0 || a.TasksPerNode != nil {
		t.Errorf("step %q, nodes %q, %d tasks %v; want the job: no step, two nodes, tasks unknown", a.StepID, a.Nodes, a.Tasks, a.TasksPerNode)
	}
}

func TestAddressesOfASimulationAreRead(t *testing.T) {
	a, err := slurm.FromEnviron(uneven().with(envFile{slurm.SimAddresses: "127.0.0.1,::1"}).lookup)
	if err != nil {
		t.Fatal(err)
	}
	if a.Address(0) != "127.0.0.1" || a.Address(1) != "::1" || a.NodeName() != "n4" {
		t.Errorf("addresses %q %q, node %q", a.Address(0), a.Address(1), a.NodeName())
	}
}

// dumps has the variables of batch scripts and tasks of a real Slurm 22.05, a folder for each step: see testdata/22.05/README.md.
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

// steps are the steps of dumps with the nodes and tasks that their COMMAND asks for,
// read off by hand.
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

// TestFromEnvironReadsEveryTask holds every task of every step of the corpus against what its COMMAND
// asked for and against the other tasks of the same step.
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

// checkTask holds one task of a step against the dumps of all.
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
	// hostname(1) says the node's name where each node has a host of its own: "vm" was all nodes in one.
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

// No step of the corpus is left out above.
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

// TestFromEnvironReadsBatchScripts reads the job from all batch scripts of the corpus: a plan, no step.
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
		if len(a.Nodes) != env.number(t, "SLURM_JOB_NUM_NODES") || a.NodeName() != env["SLURMD_NODENAME"] || a.Tasks != env.number(t, "SLURM_NTASKS") {
			t.Errorf("%s: nodes %q, this one %q, %d tasks", name, a.Nodes, a.NodeName(), a.Tasks)
		}
		// The only one in which Slurm contradicts itself: SLURM_NTASKS=7, SLURM_TASKS_PER_NODE=2(x4).
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

// TestRestartHasItsOwnKey: the same job before and after a requeue.
func TestRestartHasItsOwnKey(t *testing.T) {
	for restarts, want := range []string{"lab/116..0", "lab/116..1"} {
		env := readEnvFile(t, filepath.Join(dumps, "31-restarted", fmt.Sprint("rqenv.", restarts)))
		a, err := slurm.FromEnviron(env.lookup)
		if err != nil || a.Restarts != restarts || a.Key() != want {
			t.Errorf("run %d: %d restarts, key %q, %v; want %q", restarts, a.Restarts, a.Key(), err, want)
		}
	}
}

// hetTask is task 3 of five, of `srun --het-group=0,1` where component 0 has a task on n3 and component 1 two each on n1 and n2, with the
// values that Slurm 22.05.8 gave it.
func hetTask() envFile {
	return envFile{
		"SLURM_JOB_ID": "130", "SLURM_STEP_ID": "0", "SLURM_HET_SIZE": "2",
		"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NODELIST_HET_GROUP_0": "n3", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]",
		"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_STEP_NUM_TASKS": "5",
		"SLURM_NODEID": "2", "SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n2", "SLURM_GTIDS": "3,4",
	}
}

// Nodes count component by component, whatever their names.
func TestHeterogeneousNodesCountByComponent(t *testing.T) {
	for name, tt := range map[string]struct {
		env    envFile
		nodes  []string
		counts []int
	}{
		"by component": {hetTask(), []string{"n3", "n1", "n2"}, []int{1, 2, 2}},
		"rank 0": {
			hetTask().with(envFile{"SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n3"}), []string{"n3", "n1", "n2"}, []int{1, 2, 2},
		},
		"one component": {
			hetTask().with(envFile{"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NODEID": "1", "SLURM_PROCID": "2"}),
			[]string{"n1", "n2"}, []int{2, 2},
		},
	} {
		a, err := slurm.FromEnviron(tt.env.lookup)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(a.Nodes, tt.nodes) || !slices.Equal(a.TasksPerNode, tt.counts) || a.NodeName() != tt.env["SLURMD_NODENAME"] {
			t.Errorf("%s: nodes %q with %v tasks, this one is %s; want %q with %v", name, a.Nodes, a.TasksPerNode, a.NodeName(), tt.nodes, tt.counts)
		}
	}
}

func TestHeterogeneousContradictionIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		env  envFile
		want string
	}{
		"no components' nodes": {hetTask().with(envFile{"SLURM_JOB_NODELIST_HET_GROUP_0": ""}), "SLURMD_NODENAME"},
		"other nodes":          {hetTask().with(envFile{"SLURM_JOB_NODELIST_HET_GROUP_0": "n9"}), "SLURMD_NODENAME"},
		"a bad list":           {hetTask().with(envFile{"SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-"}), "SLURM_JOB_NODELIST_HET_GROUP_1"},
		"too many components":  {hetTask().with(envFile{"SLURM_HET_SIZE": "1000000000"}), "SLURM_HET_SIZE"},
	} {
		if a, err := slurm.FromEnviron(tt.env.lookup); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v; want an error about %s", name, a, err, tt.want)
		}
	}
}

// FuzzFromEnviron builds an environment from lines of NAME=value and holds what is read of it to
// what every caller relies on.
func FuzzFromEnviron(f *testing.F) {
	for _, change := range []envFile{
		{},
		{"SLURM_STEP_ID": ""},
		{"SLURM_STEP_ID": "4294967290"},
		{"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": ""},
		{"SLURM_STEP_NODELIST": "", "SLURM_RESTART_COUNT": "1"},
		{slurm.SimAddresses: "127.0.0.1,127.0.0.2"},
	} {
		var text strings.Builder
		for name, value := range uneven().with(change) {
			text.WriteString(name + "=" + value + "\n")
		}
		f.Add(text.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		env := envFile{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			env[name] = value
		}
		a, err := slurm.FromEnviron(env.lookup)
		if err != nil {
			if a != nil {
				t.Fatalf("%v beside %+v", err, a)
			}
			return
		}
		checkInvariants(t, a)
	})
}

func checkInvariants(t *testing.T, a *slurm.Allocation) {
	t.Helper()
	nodes := len(a.Nodes)
	if nodes == 0 || nodes > slurm.MaxNodes || a.NodeRank < -1 || a.NodeRank >= nodes || a.JobID == "" || a.Restarts < 0 {
		t.Fatalf("%+v", a)
	}
	sorted := slices.Sorted(slices.Values(a.Nodes))
	if len(slices.Compact(sorted)) != nodes {
		t.Fatalf("a node twice: %q", a.Nodes)
	}
	for i := range a.Nodes {
		if a.Address(i) == "" {
			t.Fatalf("node %d has no address", i)
		}
	}
	r := a.Rank()
	if r.Rank < 0 || r.Rank >= r.WorldSize || r.LocalRank < 0 || r.LocalRank >= r.LocalWorldSize ||
		r.LocalWorldSize > r.WorldSize || r.NodeRank < 0 || r.NodeRank >= r.Nodes || r.Nodes > r.WorldSize {
		t.Fatalf("%+v has the rank %+v", a, r)
	}
	sum := 0
	for _, n := range a.TasksPerNode {
		sum += n
	}
	if a.TasksPerNode != nil && (sum != a.Tasks || len(a.TasksPerNode) != nodes) {
		t.Fatalf("%d tasks on %d nodes: %v", a.Tasks, nodes, a.TasksPerNode)
	}
	if a.InStep() && (a.TasksPerNode == nil || a.TaskMode() != (slices.Max(a.TasksPerNode) > 1)) {
		t.Fatalf("%+v", a)
	}
}
