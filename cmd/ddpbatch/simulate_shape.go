package main

import (
	"errors"
	"fmt"
	"slices"

	"ddpbatch/internal/jobfile"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// allocation is the job's, in its first run.
func (p pretend) allocation(job *jobfile.Job, id int) (sim.Allocation, error) {
	a := sim.Allocation{
		Release: p.release, JobID: id, JobName: job.Name, Nodes: sim.PretendNodes(job.Nodes()), WorkDir: job.WorkDir, Layout: p.layout,
		CPUs: []int{cpusPerNode(job)}, TasksPerNode: 1, CPUsPerTask: cpusPerNode(job),
	}
	if p.names != "" {
		nodes, err := sim.NamedNodes(p.names)
		if err != nil {
			return a, fmt.Errorf("--node-names: %w", err)
		}
		a.Nodes, a.Nodelist = nodes, p.names
	}
	if p.nodelist != "" {
		names, err := slurm.ExpandHostlist(p.nodelist, sim.MaxNodes)
		if err != nil {
			return a, fmt.Errorf("--nodelist: %w", err)
		}
		for _, name := range names {
			i := slices.IndexFunc(a.Nodes, func(n sim.Node) bool { return n.Name == name })
			if i < 0 {
				return a, fmt.Errorf("--nodelist names %s, which --node-names does not", name)
			}
			a.Step = append(a.Step, i)
		}
		slices.Sort(a.Step) // Slurm's order is the job's
	}
	nodes := len(a.Nodes)
	if a.Step != nil {
		nodes = len(a.Step)
	}
	if nodes != job.Nodes() { // which the flags set, but a resume can override
		return a, fmt.Errorf("--node-names and --nodelist give the step %s, and slurm.nodes is %d", plural(nodes, "node"), job.Nodes())
	}
	switch {
	case job.Launch.Mode == "task":
		var err error
		if a, err = p.taskMode(a, job); err != nil {
			return a, err
		}
	case p.layout != "":
		return a, errors.New(`--distribution deals out the tasks of a node, of which there is one: the agent; write launch.mode = "task" to have srun start the ranks`)
	}
	return p.heterogeneous(a)
}

// heterogeneous parts the nodes into the components of a heterogeneous job, where it is to be one.
func (p pretend) heterogeneous(a sim.Allocation) (sim.Allocation, error) {
	if p.het == "" {
		return a, nil
	}
	components, err := p.components()
	for _, n := range components {
		a.Components = append(a.Components, sim.Component{Nodes: n, TasksPerNode: a.TasksPerNode, CPUsPerTask: a.CPUsPerTask})
	}
	return a, err
}

// taskMode has srun start one task for each rank.
func (p pretend) taskMode(a sim.Allocation, job *jobfile.Job) (sim.Allocation, error) {
	n := job.Launch.NprocPerNode
	if n.Word != "" {
		return a, fmt.Errorf("launch.nproc_per_node is %q, and srun wants numbers where it starts the ranks (launch.mode = \"task\")", n.Word)
	}
	a.Tasks = n.Counts
	if list, err := p.taskCounts(); p.tasks != "" && err == nil {
		n.Counts = list
		a.Tasks = list
	}
	if len(n.Counts) == 1 {
		a.Tasks = slices.Repeat(n.Counts, job.Nodes())
	}
	a.TasksPerNode, a.CPUsPerTask = job.MaxNproc(), job.CPUsPerRank()
	return a, nil
}
