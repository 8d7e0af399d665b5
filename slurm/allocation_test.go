package slurm_test

import (
	"errors"
	"maps"
	"slices"
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
	for _, env := range []envFile{{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "(null)"},
		{"SLURM_CONF": "/etc/slurm.conf", "SLURM_STEP_ID": "0"}} {
		a, err := slurm.FromEnviron(env.lookup)
		if !errors.Is(err, slurm.ErrNotInSlurm) || !strings.Contains(err.Error(), "SLURM_JOB_ID") {
			t.Errorf("%v: %+v, %v; want ErrNotInSlurm", env, a, err)
		}
	}
}

// An environment that contradicts itself is an error that gives the variables' names and values.
func TestFromEnvironRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change envFile
		want   string
	}{
		"job id":        {envFile{"SLURM_JOB_ID": "7;rm"}, `SLURM_JOB_ID="7;rm"`},
		"negative step": {envFile{"SLURM_STEP_ID": "-1"}, `SLURM_STEP_ID="-1"`},
		"restarts":      {envFile{"SLURM_RESTART_COUNT": "-1"}, "SLURM_RESTART_COUNT"},
		"no nodelist": {envFile{"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""},
			"SLURM_STEP_NODELIST or SLURM_JOB_NODELIST or SLURM_NODELIST is not set"},
		"empty nodelist":   {envFile{"SLURM_STEP_NODELIST": " ,"}, "does not name any node"},
		"bad nodelist":     {envFile{"SLURM_STEP_NODELIST": "n[3-"}, "SLURM_STEP_NODELIST: hostlist"},
		"hostile nodelist": {envFile{"SLURM_STEP_NODELIST": "n[0-999999999]"}, "SLURM_STEP_NODELIST: hostlist"},
		"job's longer list": {envFile{"SLURM_STEP_NODELIST": ""},
			`SLURM_JOB_NODELIST="n[1-4]" names 4 nodes, but SLURM_STEP_TASKS_PER_NODE="2,1" counts the tasks of 2`},
		"longer counts": {envFile{"SLURM_STEP_TASKS_PER_NODE": "1(x3)"},
			`SLURM_STEP_NODELIST="n[3-4]" names 2 nodes, but SLURM_STEP_TASKS_PER_NODE="1(x3)" counts the tasks of 3`},
		"no counts": {envFile{"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_TASKS_PER_NODE": ""},
			"SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE is not set"},
		"bad counts":     {envFile{"SLURM_STEP_TASKS_PER_NODE": "2;1"}, "SLURM_STEP_TASKS_PER_NODE: counts"},
		"hostile counts": {envFile{"SLURM_STEP_TASKS_PER_NODE": "1(x999999999)"}, "SLURM_STEP_TASKS_PER_NODE: counts"},
		"total": {envFile{"SLURM_STEP_NUM_TASKS": "4"},
			`SLURM_STEP_NUM_TASKS="4", but the counts in SLURM_STEP_TASKS_PER_NODE="2,1" add up to 3`},
		"total not a number":  {envFile{"SLURM_STEP_NUM_TASKS": "three"}, "SLURM_STEP_NUM_TASKS"},
		"node without a task": {envFile{"SLURM_STEP_TASKS_PER_NODE": "3,0"}, "n4"},
		"node named twice":    {envFile{"SLURM_STEP_NODELIST": "n4,n4"}, "n4 twice"},
		"node out of range":   {envFile{"SLURM_NODEID": "2"}, `SLURM_NODEID is 2, but SLURM_STEP_NODELIST="n[3-4]" names only 2 nodes`},
		"no node":             {envFile{"SLURM_NODEID": ""}, "SLURM_NODEID is not set"},
		"rank out of range":   {envFile{"SLURM_PROCID": "3"}, "SLURM_PROCID is 3"},
		"no rank":             {envFile{"SLURM_PROCID": "(null)"}, "SLURM_PROCID is not set"},
		"hostile rank":        {envFile{"SLURM_PROCID": "4294967295"}, "SLURM_PROCID"},
		"local out of range": {envFile{"SLURM_LOCALID": "1"},
			`SLURM_LOCALID is 1, but SLURM_STEP_TASKS_PER_NODE="2,1" counts only 1 for node n4`},
		"no local rank": {envFile{"SLURM_LOCALID": ""}, "SLURM_LOCALID is not set"},
		"another node's name": {envFile{"SLURMD_NODENAME": "n1"},
			`SLURMD_NODENAME="n1", but SLURM_NODEID is 1 and that node of SLURM_STEP_NODELIST="n[3-4]" is n4`},
		"too few addresses":   {envFile{slurm.SimAddresses: "127.0.0.1"}, "1 addresses for 2 nodes"},
		"address with a name": {envFile{slurm.SimAddresses: "127.0.0.1,evil.example"}, `"evil.example" is not an IP address`},
		"batch: node": {envFile{"SLURM_STEP_ID": "", "SLURM_NODEID": "4"},
			`SLURM_NODEID is 4, but SLURM_JOB_NODELIST="n[1-4]" names only 4 nodes`},
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

// TestCheckLayout covers tasks whose rank 0 is on the second node. Two tasks can detect it: rank 0, and the first task of the first node.
func TestCheckLayout(t *testing.T) {
	for want, change := range map[string]envFile{
		"":  {},
		" ": {"SLURM_NODEID": "0", "SLURM_LOCALID": "1", "SLURM_PROCID": "2", "SLURMD_NODENAME": ""},
		"SLURM_PROCID is 0 on n4, but the other tasks look for rank 0 on n3": {"SLURM_PROCID": "0"},
		"the first task on n3, the step's first node, has SLURM_PROCID 1, but the others look for": {"SLURM_NODEID": "0",
			"SLURM_PROCID": "1", "SLURMD_NODENAME": ""},
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

// Salloc's shell on a compute node sees a step of one task with a reserved id. The values are those of a real one.
func TestInteractiveStepIsNotAStep(t *testing.T) {
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
		t.Errorf("step %q, nodes %q, %d tasks %v; want the job: no step, two nodes, tasks unknown", a.StepID, a.Nodes,
			a.Tasks, a.TasksPerNode)
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

// hetTask is task 3 of five, of `srun --het-group=0,1`. Component 0 has a task on n3, and component 1 has two tasks each on n1 and n2.
// Slurm 22.05.8 set these values.
func hetTask() envFile {
	return envFile{
		"SLURM_JOB_ID": "130", "SLURM_STEP_ID": "0", "SLURM_HET_SIZE": "2",
		"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NODELIST_HET_GROUP_0": "n3", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]",
		"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_STEP_NUM_TASKS": "5",
		"SLURM_NODEID": "2", "SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n2", "SLURM_GTIDS": "3,4",
	}
}

// Nodes are numbered component by component, whatever their names.
func TestHeterogeneousNodesCountByComponent(t *testing.T) {
	for name, tt := range map[string]struct {
		env    envFile
		nodes  []string
		counts []int
	}{
		"by component": {hetTask(), []string{"n3", "n1", "n2"}, []int{1, 2, 2}},
		"rank 0": {
			hetTask().with(envFile{"SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n3"}),
			[]string{"n3", "n1", "n2"}, []int{1, 2, 2},
		},
		"one component": {
			hetTask().with(envFile{"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": "4",
				"SLURM_NODEID": "1", "SLURM_PROCID": "2"}),
			[]string{"n1", "n2"}, []int{2, 2},
		},
	} {
		a, err := slurm.FromEnviron(tt.env.lookup)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(a.Nodes, tt.nodes) || !slices.Equal(a.TasksPerNode, tt.counts) || a.NodeName() != tt.env["SLURMD_NODENAME"] {
			t.Errorf("%s: nodes %q with %v tasks, this one is %s; want %q with %v", name, a.Nodes, a.TasksPerNode,
				a.NodeName(), tt.nodes, tt.counts)
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

// FuzzFromEnviron builds an environment from lines of NAME=value, and checks that what FromEnviron returns has the properties on which
// every caller relies.
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
