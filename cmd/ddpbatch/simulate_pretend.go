package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// pretend is what a simulated job is like, beyond its job file: the shape of the allocation, and what befalls it.
type pretend struct {
	nodes, nproc string // over the job's own; "": as it says
	names        string // host list of the job's nodes; "": node1, node2, ...
	nodelist     string // of those, the ones that the step runs on; "": all
	tasks        string // how many ranks srun starts on each node, as 2,2,1; "": it starts one agent on each, or as the job says
	het          string // how many nodes each component of a heterogeneous job has, as 1,2; "": the job is not one
	layout       sim.Layout
	release      sim.Release   // of Slurm
	array        string        // over the job's own
	limit        time.Duration // the job's time; 0: none
	killWait     time.Duration
	grace        time.Duration // of a preemption
	faults       []sim.Fault
	emptied      []string // keys of the job file whose flags were given without a value
	quiet        bool     // what ranks print goes to the job's log alone
}

// defaultPretend is a job to which nothing happens.
func defaultPretend() pretend {
	return pretend{release: sim.Slurm2205, killWait: sim.KillWait, grace: sim.KillWait}
}

// pretendFlags are those of simulate and rehearse.
func pretendFlags() []cli.Flag {
	d := defaultPretend()
	return []cli.Flag{
		&cli.StringFlag{Name: "nodes", Usage: "pretend `N` nodes (default: the job's)"},
		&cli.StringFlag{Name: "nproc-per-node", Aliases: []string{"nproc_per_node"}, Usage: "`M` ranks on each, or a list with one number a node (default: the job's)"},
		&cli.StringFlag{Name: "node-names", Usage: "call the job's nodes as in `HOSTLIST`"},
		&cli.StringFlag{Name: "nodelist", Usage: "run on these of them only, as srun -w does: a `HOSTLIST`"},
		&cli.StringFlag{Name: "tasks-per-node", Usage: `have srun start the ranks (launch.mode = "task"), as many on each node as in a ` + "`LIST`, as 2,2,1"},
		&cli.StringFlag{Name: "distribution", Usage: `how ranks are dealt out where launch.mode is "task": block or cyclic`},
		&cli.StringFlag{Name: "het-nodes", Usage: "pretend a heterogeneous job (sbatch's hetjob) and one srun over it: how many nodes each component has, as `1,2`"},
		&cli.StringFlag{Name: "slurm", Usage: "the release of Slurm to play: `22.05` or 25.11", Value: string(d.release)},
		&cli.StringFlag{Name: "array", Usage: "run as an array, as sbatch's --array: `0-3%2`"},
		&cli.DurationFlag{Name: "time", Usage: "the pretend time limit; requeue.lead before it comes the warning (default: none)"},
		&cli.DurationFlag{Name: "kill-wait", Usage: "between TERM and KILL (slurm.conf, KillWait)", Value: d.killWait},
		&cli.DurationFlag{Name: "grace-time", Usage: "between a preemption's first TERM and its last (slurm.conf, GraceTime)", Value: d.grace},
		&cli.StringSliceFlag{Name: "fault", Usage: "inject a fault: KIND[:OPTIONS][@step=N|@time=3s][#attempt=N], such as `kill:rank=3@step=20` (may be repeated); kinds: " + sim.Kinds},
	}
}

func pretendOf(c *cli.Context) (pretend, error) {
	p := pretend{
		nodes: c.String("nodes"), nproc: c.String("nproc-per-node"), names: c.String("node-names"), nodelist: c.String("nodelist"),
		layout: sim.Layout(c.String("distribution")), tasks: c.String("tasks-per-node"), het: c.String("het-nodes"), array: c.String("array"),
		release: sim.Release(c.String("slurm")), limit: c.Duration("time"), killWait: c.Duration("kill-wait"), grace: c.Duration("grace-time"),
	}
	nodes, err := strconv.Atoi(p.nodes)
	switch {
	case p.nodes != "" && (err != nil || nodes < 1 || nodes > sim.MaxNodes):
		return p, usagef("--nodes is %q; it must be a whole number from 1 to %d", p.nodes, sim.MaxNodes)
	case p.tasks != "" && p.nproc != "":
		return p, usagef("--tasks-per-node and --nproc-per-node both say how many ranks a node has; leave one of them out")
	case p.layout != "" && p.layout != sim.Block && p.layout != sim.Cyclic:
		return p, usagef("--distribution is %q; it must be block or cyclic", p.layout)
	case p.release == "":
		p.release = defaultPretend().release
	case !slices.Contains(sim.Releases, p.release):
		return p, usagef("--slurm is %q; it must be 22.05 or 25.11", p.release)
	}
	switch {
	case p.limit < 0 || c.IsSet("time") && p.limit == 0:
		return p, usagef("--time is %v; write a time such as 90s or 10m", p.limit)
	case p.killWait <= 0 || p.grace <= 0:
		return p, usagef("--kill-wait and --grace-time must be longer than 0")
	}
	for name, key := range map[string]string{"nodes": "slurm.nodes", "nproc-per-node": "launch.nproc_per_node", "array": "slurm.array"} {
		if c.IsSet(name) && c.String(name) == "" {
			p.emptied = append(p.emptied, key)
		}
	}
	for _, text := range c.StringSlice("fault") {
		f, err := sim.ParseFault(text)
		if err != nil {
			return p, usagef("--fault: %v", err)
		}
		p.faults = append(p.faults, f)
	}
	return p, p.countNodes()
}

// countNodes finds out the number of nodes where other flags tell it.
func (p *pretend) countNodes() error {
	list, flag := p.nodelist, "--nodelist"
	if list == "" {
		list, flag = p.names, "--node-names"
	}
	told := 0
	if list != "" {
		var err error
		if told, err = slurm.CountHosts(list); err != nil {
			return usagef("%s: %v", flag, err)
		}
	} else if n := strings.Count(p.nproc+p.tasks, ","); n > 0 {
		told, flag = n+1, "the list of ranks"
	} else if p.het != "" {
		components, err := p.components()
		if err != nil {
			return err
		}
		flag = "--het-nodes"
		for _, n := range components {
			told += n
		}
	}
	switch {
	case told == 0:
	case p.nodes == "":
		p.nodes = strconv.Itoa(told)
	case p.nodes != strconv.Itoa(told):
		return usagef("--nodes is %s, and %s names %s", p.nodes, flag, plural(told, "node"))
	}
	if p.tasks != "" {
		if _, err := p.taskCounts(); err != nil {
			return err
		}
	}
	if p.nodelist != "" && p.names == "" {
		return &usageError{message: "--nodelist picks from the nodes that --node-names gives to the job", hint: "say both"}
	}
	return nil
}

// taskCounts are the numbers of --tasks-per-node.
func (p *pretend) taskCounts() ([]int, error) {
	list, ok := countList(p.tasks)
	if !ok {
		return nil, usagef("--tasks-per-node is %q; write one number from 1 for each node, as 2,2,1", p.tasks)
	}
	return list, nil
}

// components are the numbers of --het-nodes.
func (p *pretend) components() ([]int, error) {
	list, ok := countList(p.het)
	if !ok {
		return nil, usagef("--het-nodes is %q; write how many nodes each component has, each a number from 1 to %d, as 1,2", p.het, sim.MaxNodes)
	}
	return list, nil
}

// countList reads numbers from 1 with commas between.
func countList(text string) (list []int, ok bool) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(word, 10, 31)
		if err != nil || n < 1 {
			return nil, false
		}
		list = append(list, int(n))
	}
	return list, true
}

// sets are the overrides of the job file that the flags amount to.
func (p pretend) sets() []string {
	var sets []string
	if p.nodes != "" {
		sets = append(sets, "slurm.nodes="+p.nodes)
	}
	if strings.Contains(p.nproc, ",") {
		sets = append(sets, "launch.nproc_per_node=["+p.nproc+"]")
	} else if p.nproc != "" {
		sets = append(sets, "launch.nproc_per_node="+p.nproc)
	}
	if list, err := p.taskCounts(); p.tasks != "" && err == nil {
		sets = append(sets, "launch.mode=task", "launch.nproc_per_node="+strconv.Itoa(slices.Max(list)))
	}
	if p.array != "" {
		sets = append(sets, "slurm.array="+p.array)
	}
	if p.limit > 0 { // requeue.lead is a part of it
		sets = append(sets, "slurm.time="+slurm.FormatTime(max(p.limit, time.Second)))
	}
	return sets
}

// check says what cannot be pretended of a job.
func (p pretend) check(job *jobfile.Job) error {
	if job.Nodes() > sim.MaxNodes {
		return usagef("simulate pretends up to %d nodes, not %d", sim.MaxNodes, job.Nodes())
	}
	array, err := arrayOf(job)
	switch {
	case err != nil:
		return usagef("slurm.array: %v", err)
	case array != nil && p.het != "":
		return usagef("--het-nodes: Slurm takes no array of heterogeneous jobs")
	}
	a, err := p.allocation(job, 1)
	if err != nil {
		return &usageError{message: err.Error()}
	}
	if err := errors.Join(a.Validate(), a.CheckFaults(p.faults, p.ranks(job, a))); err != nil {
		return &usageError{message: err.Error()}
	}
	return nil
}

// ranks is how many ranks a job has; as many as there may be where only its nodes can tell.
func (p pretend) ranks(job *jobfile.Job, a sim.Allocation) int {
	n := job.Launch.NprocPerNode
	if a.Tasks != nil {
		return len(a.Places())
	}
	if n.Word != "" {
		return 1 << 20
	}
	if len(n.Counts) == 1 {
		return n.Counts[0] * job.Nodes()
	}
	sum := 0
	for _, count := range n.Counts {
		sum += count
	}
	return sum
}

// arrayOf is what slurm.array asks for; nil where it asks for nothing.
func arrayOf(job *jobfile.Job) (*sim.Array, error) {
	text, ok := job.Slurm.Get("array")
	if !ok {
		return nil, nil
	}
	array, err := sim.ParseArray(text)
	return &array, err
}
