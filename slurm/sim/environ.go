package sim

import (
	"slices"
	"strconv"
	"strings"

	"ddpbatch/slurm"
)

// clusterName and partition stand where a real cluster's would.
const (
	clusterName = "simulate"
	partition   = "simulate"
)

// Environ is what Slurm sets for the agent's task on node i, as "NAME=value" in no particular order,
// with the pretend addresses ([slurm.SimAddresses]). It holds nothing of this process's own environment:
// append it to what slurm.Scrub keeps of that. It panics where i is not below Nodes.
func (a Allocation) Environ(i int) []string {
	return slices.Concat(a.job(), a.step(), a.task(i))
}

// job is what is the same for all steps of the job.
func (a Allocation) job() []string {
	id, nodes, nodelist := strconv.Itoa(a.JobID), strconv.Itoa(a.Nodes), a.nodelist()
	env := []string{
		"SLURM_CLUSTER_NAME=" + clusterName,
		"SLURM_JOB_PARTITION=" + partition,
		"SLURM_JOB_ID=" + id,
		"SLURM_JOBID=" + id,
		"SLURM_JOB_NAME=" + a.JobName,
		"SLURM_JOB_NUM_NODES=" + nodes,
		"SLURM_NNODES=" + nodes,
		"SLURM_JOB_NODELIST=" + nodelist,
		"SLURM_NODELIST=" + nodelist,
		"SLURM_SUBMIT_DIR=" + a.WorkDir,
	}
	if a.Restarts > 0 { // Slurm does not set it in the first run
		env = append(env, "SLURM_RESTART_COUNT="+strconv.Itoa(a.Restarts))
	}
	if a.CPUs > 0 {
		cpus := strconv.Itoa(a.CPUs)
		env = append(env,
			"SLURM_JOB_CPUS_PER_NODE="+a.perNode(a.CPUs),
			"SLURM_CPUS_ON_NODE="+cpus,
			"SLURM_CPUS_PER_TASK="+cpus,
		)
	}
	return env
}

// step is what is the same for all tasks of the step.
func (a Allocation) step() []string {
	nodes, tasks := strconv.Itoa(a.Nodes), a.perNode(1)
	addresses := make([]string, a.Nodes)
	for i := range addresses {
		addresses[i] = a.Address(i)
	}
	return []string{
		"SLURM_STEP_ID=0",
		"SLURM_STEPID=0",
		"SLURM_STEP_NODELIST=" + a.nodelist(),
		"SLURM_STEP_NUM_NODES=" + nodes,
		"SLURM_STEP_NUM_TASKS=" + nodes,
		"SLURM_STEP_TASKS_PER_NODE=" + tasks,
		"SLURM_TASKS_PER_NODE=" + tasks,
		"SLURM_NTASKS=" + nodes,
		"SLURM_NPROCS=" + nodes,
		"SLURM_NTASKS_PER_NODE=1",
		"SLURM_DISTRIBUTION=cyclic",
		"SLURM_LAUNCH_NODE_IPADDR=" + a.Address(0),
		slurm.SimAddresses + "=" + strings.Join(addresses, ","),
	}
}

// task is what tells the task on node i from the others.
func (a Allocation) task(i int) []string {
	index, name := strconv.Itoa(i), a.Name(i)
	return []string{
		"SLURM_NODEID=" + index,
		"SLURM_PROCID=" + index,
		"SLURM_GTIDS=" + index,
		"SLURM_LOCALID=0",
		"SLURMD_NODENAME=" + name,
		"SLURM_TOPOLOGY_ADDR=" + name,
		"SLURM_TOPOLOGY_ADDR_PATTERN=node",
	}
}

func (a Allocation) nodelist() string {
	names := make([]string, a.Nodes)
	for i := range names {
		names[i] = a.Name(i)
	}
	return slurm.FoldHostlist(names)
}

// perNode writes the same number for every node.
func (a Allocation) perNode(n int) string {
	return slurm.FormatTaskCounts(slices.Repeat([]int{n}, a.Nodes))
}
