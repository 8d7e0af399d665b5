package slurm_test

import (
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

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
