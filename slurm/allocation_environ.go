package slurm

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// SimAddresses names the variable in which simulate gives the pretend nodes' addresses: IP
// addresses, one a node in the order of SLURM_NODEID, with commas between. Slurm knows nothing of it.
const SimAddresses = "DDPBATCH_SIM_ADDRS"

// maxNormalStep is the largest id of a step that srun makes (SLURM_MAX_NORMAL_STEP_ID in slurm.h).
// Beyond are the batch script, the external step and salloc's interactive shell (4294967290), in
// which SLURM_STEP_* describe one task on one node, whatever the job has.
const maxNormalStep = 0xfffffff0

// FromEnviron reads the allocation from Slurm's variables, which lookup gives (os.LookupEnv, say).
// It runs no command, so that it works in a container too.
//
// In a step the step's own variables come first and the job's second; what neither says, or what
// contradicts itself, is an error that names the variables, because a wrong world hangs or trains
// wrongly. SLURM_NTASKS_PER_NODE is never read: it only repeats what sbatch was asked. Outside any
// job the error is [ErrNotInSlurm]. An empty variable counts as unset, and so does "(null)".
func FromEnviron(lookup func(string) (string, bool)) (*Allocation, error) {
	a, err := readAllocation(environ(lookup))
	if err != nil {
		return nil, fmt.Errorf("read Slurm's environment: %w", err)
	}
	return a, nil
}

func readAllocation(env environ) (*Allocation, error) {
	a := new(Allocation)
	if err := a.readJob(env); err != nil {
		return nil, err
	}
	var err error
	if a.InStep() {
		err = a.readStep(env)
	} else {
		err = a.readPlan(env)
	}
	if err != nil {
		return nil, err
	}
	if a.CPUsOnNode, err = env.numberOr(0, "SLURM_CPUS_ON_NODE"); err != nil {
		return nil, err
	}
	if a.Addresses, err = readAddresses(env, len(a.Nodes)); err != nil {
		return nil, err
	}
	return a, nil
}

// readJob reads what tells this run of this step from others.
func (a *Allocation) readJob(env environ) (err error) {
	if a.JobID, err = env.id("SLURM_JOB_ID"); err != nil {
		return err
	}
	if a.JobID == "" {
		return fmt.Errorf("SLURM_JOB_ID is not set: %w", ErrNotInSlurm)
	}
	if a.StepID, err = env.id("SLURM_STEP_ID"); err != nil {
		return err
	}
	if n, err := strconv.ParseUint(a.StepID, 10, 32); err == nil && n > maxNormalStep {
		a.StepID = ""
	}
	if a.ArrayJobID, err = env.id("SLURM_ARRAY_JOB_ID"); err != nil {
		return err
	}
	if a.ArrayTaskID, err = env.id("SLURM_ARRAY_TASK_ID"); err != nil {
		return err
	}
	if a.Restarts, err = env.numberOr(0, "SLURM_RESTART_COUNT"); err != nil {
		return err
	}
	cluster, _ := env.first("SLURM_CLUSTER_NAME")
	a.Cluster = cluster.value
	return nil
}

// readPlan reads the job outside a step. What Slurm says of tasks there may be missing (SLURM_NTASKS
// came and went in 23.02), and the counts may be wrong (22.05 has SLURM_TASKS_PER_NODE=2(x4) in the
// batch script of 7 tasks) or count CPUs (where no tasks were asked for), so that counts which
// SLURM_NTASKS does not confirm are left out.
func (a *Allocation) readPlan(env environ) error {
	nodelist, err := a.readNodes(env, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	if err != nil {
		return err
	}
	counts, err := readCounts(env, "SLURM_TASKS_PER_NODE")
	if err != nil && !errors.Is(err, errNotSet) {
		return err
	}
	if a.Tasks, err = env.numberOr(0, "SLURM_NTASKS", "SLURM_NPROCS"); err != nil {
		return err
	}
	if len(counts.list) == len(a.Nodes) && counts.total == a.Tasks {
		a.TasksPerNode = counts.list
	}
	if a.NodeRank, err = env.numberOr(-1, "SLURM_NODEID"); err != nil {
		return err
	}
	if a.NodeRank >= len(a.Nodes) {
		return fmt.Errorf("SLURM_NODEID is %d, but %s names only %d nodes", a.NodeRank, nodelist, len(a.Nodes))
	}
	return nil
}

// readNodes sets Nodes from the first of the variables that is set, and returns it.
func (a *Allocation) readNodes(env environ, names ...string) (variable, error) {
	nodelist, err := env.need(names...)
	if err != nil {
		return variable{}, err
	}
	a.Nodes, err = ExpandHostlist(nodelist.value, MaxNodes)
	if err != nil {
		return variable{}, fmt.Errorf("%s: %w", nodelist.name, err)
	}
	if len(a.Nodes) == 0 {
		return variable{}, fmt.Errorf("%s names no node", nodelist)
	}
	seen := make(map[string]bool, len(a.Nodes))
	for _, name := range a.Nodes {
		if seen[name] {
			return variable{}, fmt.Errorf("%s names node %s twice", nodelist, name)
		}
		seen[name] = true
	}
	return nodelist, nil
}

func readAddresses(env environ, nodes int) ([]string, error) {
	v, set := env.first(SimAddresses)
	if !set {
		return nil, nil
	}
	addresses := strings.Split(v.value, ",")
	if len(addresses) != nodes {
		return nil, fmt.Errorf("%s gives %d addresses for %d nodes", v, len(addresses), nodes)
	}
	for _, address := range addresses {
		if _, err := netip.ParseAddr(address); err != nil {
			return nil, fmt.Errorf("%s: %s is not an IP address", v.name, clip(address))
		}
	}
	return addresses, nil
}
