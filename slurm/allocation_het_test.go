package slurm_test

import (
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

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

// TestHeterogeneousOrder: nodes count component by component, whatever their names.
func TestHeterogeneousOrder(t *testing.T) {
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

func TestHeterogeneousRefuses(t *testing.T) {
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
