package sim

import (
	"slices"
	"strconv"
	"strings"

	"ddpbatch/slurm"
)

// clusterName and partition are used as the names of the cluster and of its partition.
const (
	clusterName = "simulate"
	partition   = "simulate"
)

// Environ returns the variables that Slurm sets for one task of the step, as "NAME=value" in no particular order,
// and the pretend addresses ([slurm.SimAddresses]). It does not contain this process's own environment:
// append it to what slurm.Scrub keeps of that.
func (a Allocation) Environ(t Task) []string {
	return slices.Concat(a.jobEnviron(), a.componentsEnviron(), a.stepEnviron(), a.taskEnviron(t))
}

// ScriptEnviron returns the variables that Slurm sets for the job's batch script.
func (a Allocation) ScriptEnviron() []string {
	return slices.Concat(a.leader().jobEnviron(), a.componentsEnviron())
}

// jobEnviron returns the variables that are the same for all steps of the job, except the node's CPUs.
func (a Allocation) jobEnviron() []string {
	id, nodelist := strconv.Itoa(a.JobID), a.nodelist()
	env := []string{
		"SLURM_CLUSTER_NAME=" + clusterName,
		"SLURM_JOB_PARTITION=" + partition,
		"SLURM_JOB_ID=" + id,
		"SLURM_JOBID=" + id,
		"SLURM_JOB_NAME=" + a.JobName,
		"SLURM_JOB_NUM_NODES=" + strconv.Itoa(len(a.Nodes)),
		"SLURM_JOB_NODELIST=" + nodelist,
		"SLURM_NODELIST=" + nodelist,
		"SLURM_SUBMIT_DIR=" + a.WorkDir,
	}
	env = appendSet(env, "SLURM_RESTART_COUNT", a.Restarts) // absent in the first run
	if a.Components == nil {
		env = appendSet(env, "SLURM_NTASKS_PER_NODE", a.TasksPerNode)
		env = appendSet(env, "SLURM_CPUS_PER_TASK", a.CPUsPerTask)
	}
	if a.Release == Slurm2511 {
		env = append(env, "SLURM_OOM_KILL_STEP=0")
		if a.Components == nil && a.CPUsPerTask > 0 {
			env = append(env, "SLURM_TRES_PER_TASK=cpu="+strconv.Itoa(a.CPUsPerTask))
		}
	}
	if len(a.CPUs) > 0 {
		env = append(env, "SLURM_JOB_CPUS_PER_NODE="+slurm.FormatTaskCounts(reordered(a.cpus(), a.listOrder(a.Nodes))))
	}
	if !a.EndTime.IsZero() {
		env = append(env, "SLURM_JOB_END_TIME="+strconv.FormatInt(a.EndTime.Unix(), 10))
	}
	if a.Array != nil {
		env = append(env, a.Array.environ()...)
	}
	return env
}

// appendSet appends a variable, unless n is 0: Slurm does not set these variables to 0.
func appendSet(env []string, name string, n int) []string {
	if n == 0 {
		return env
	}
	return append(env, name+"="+strconv.Itoa(n))
}

// cpus returns the CPUs of each node of the job.
func (a Allocation) cpus() []int {
	if len(a.CPUs) == 1 {
		return slices.Repeat(a.CPUs, len(a.Nodes))
	}
	return a.CPUs
}

// stepEnviron returns the variables that are the same for all tasks of the step.
func (a Allocation) stepEnviron() []string {
	nodes, counts := strconv.Itoa(a.stepNodes()), slurm.FormatTaskCounts(reordered(a.tasks(), a.listOrder(a.nodesOfStep())))
	total := 0
	for _, n := range a.tasks() {
		total += n
	}
	tasks := strconv.Itoa(total)
	nodelist, addresses := a.nodelist(), []string{}
	if a.Step != nil {
		nodelist = fold(a.nodesOfStep())
	}
	for _, node := range a.nodesOfStep() {
		addresses = append(addresses, node.Address)
	}
	return []string{
		"SLURM_NNODES=" + nodes,
		"SLURM_STEP_ID=0",
		"SLURM_STEPID=0",
		"SLURM_STEP_NODELIST=" + nodelist,
		"SLURM_STEP_NUM_NODES=" + nodes,
		"SLURM_STEP_NUM_TASKS=" + tasks,
		"SLURM_STEP_TASKS_PER_NODE=" + counts,
		"SLURM_TASKS_PER_NODE=" + counts,
		"SLURM_NTASKS=" + tasks,
		"SLURM_NPROCS=" + tasks,
		"SLURM_LAUNCH_NODE_IPADDR=" + a.Nodes[0].Address,
		slurm.SimAddresses + "=" + strings.Join(addresses, ","),
	}
}

// taskEnviron returns the variables that differ between tasks.
func (a Allocation) taskEnviron(t Task) []string {
	node := a.StepNode(t.Node)
	name := a.Nodes[node].Name
	procs := make([]string, len(t.Procs))
	for i, proc := range t.Procs {
		procs[i] = strconv.Itoa(proc)
	}
	spans := a.spans()
	component := slices.IndexFunc(spans, func(span [2]int) bool { return t.Node < span[1] })
	env := []string{
		"SLURM_DISTRIBUTION=" + string(a.layout(spans[component])),
		"SLURM_NODEID=" + strconv.Itoa(t.Node),
		"SLURM_PROCID=" + strconv.Itoa(t.Proc),
		"SLURM_GTIDS=" + strings.Join(procs, ","),
		"SLURM_LOCALID=" + strconv.Itoa(t.Local),
		"SLURMD_NODENAME=" + name,
		"SLURM_TOPOLOGY_ADDR=" + name,
		"SLURM_TOPOLOGY_ADDR_PATTERN=node",
	}
	if len(a.CPUs) > 0 {
		env = append(env, "SLURM_CPUS_ON_NODE="+strconv.Itoa(a.cpus()[node]))
	}
	if a.Components != nil {
		env = appendSet(env, "SLURM_NTASKS_PER_NODE", a.Components[component].TasksPerNode)
	}
	return env
}

func (a Allocation) nodelist() string {
	if a.Nodelist != "" && a.Components == nil {
		return a.Nodelist
	}
	return fold(reordered(a.Nodes, a.listOrder(a.Nodes)))
}

// nodesOfStep returns the nodes of the step.
func (a Allocation) nodesOfStep() []Node {
	nodes := make([]Node, a.stepNodes())
	for i := range nodes {
		nodes[i] = a.Nodes[a.StepNode(i)]
	}
	return nodes
}

func fold(nodes []Node) string {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	return slurm.FoldHostlist(names)
}
