package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// Pretend describes a simulated job beyond its job file: the shape of the allocation, and what happens to it.
type Pretend struct {
	Nodes, Nproc string // instead of the job's own; "": as the job says
	Names        string // host list of the job's nodes; "": node1, node2, ...
	Nodelist     string // those of the nodes that the step runs on; "": all
	Tasks        []int  // how many ranks srun starts on each node; nil: one agent on each node, or as the job says
	HetNodes     []int  // the number of nodes of each component of a heterogeneous job; nil: it is not heterogeneous
	Distribution sim.Layout
	Release      sim.Release   // of Slurm
	Array        string        // instead of the job's own
	Time         time.Duration // the job's time limit; 0: none
	KillWait     time.Duration
	GraceTime    time.Duration // of a preemption
	Faults       []sim.Fault
	Emptied      []string // keys of the job file whose flags were given with an empty value
	Quiet        bool     // the ranks' output goes only to the job's log
}

// DefaultPretend returns a job to which nothing happens.
func DefaultPretend() Pretend {
	return Pretend{Release: sim.Slurm2205, KillWait: sim.KillWait, GraceTime: sim.KillWait}
}

// CountNodes sets the number of nodes if other flags imply it.
func (p *Pretend) CountNodes() error {
	list, flag := p.Nodelist, "--nodelist"
	if list == "" {
		list, flag = p.Names, "--node-names"
	}
	count := 0
	if list != "" {
		var err error
		if count, err = slurm.CountHosts(list); err != nil {
			return usage.Errorf("%s: %v", flag, err)
		}
	} else if n := max(strings.Count(p.Nproc, ",")+1, len(p.Tasks)); n > 1 {
		count, flag = n, "the list of ranks"
	} else {
		flag = "--het-nodes"
		for _, n := range p.HetNodes {
			count += n
		}
	}
	switch {
	case count == 0:
	case p.Nodes == "":
		p.Nodes = strconv.Itoa(count)
	case p.Nodes != strconv.Itoa(count):
		return usage.Errorf("--nodes is %s, but %s names %s", p.Nodes, flag, text.Plural(count, "node"))
	}
	if p.Nodelist != "" && p.Names == "" {
		return &usage.Error{Message: "--nodelist selects from the nodes of --node-names, which is not set", Hint: "give both"}
	}
	return nil
}

// ParseCounts parses positive numbers separated by commas. An empty text has none.
func ParseCounts(text string) (list []int, ok bool) {
	if text == "" {
		return nil, true
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(word, 10, 31)
		if err != nil || n < 1 {
			return nil, false
		}
		list = append(list, int(n))
	}
	return list, true
}

// Sets returns the overrides of the job file that the flags amount to.
func (p Pretend) Sets() []string {
	var sets []string
	if p.Nodes != "" {
		sets = append(sets, "slurm.nodes="+p.Nodes)
	}
	if strings.Contains(p.Nproc, ",") {
		sets = append(sets, "launch.nproc_per_node=["+p.Nproc+"]")
	} else if p.Nproc != "" {
		sets = append(sets, "launch.nproc_per_node="+p.Nproc)
	}
	if p.Tasks != nil {
		sets = append(sets, "launch.mode=task", "launch.nproc_per_node="+strconv.Itoa(slices.Max(p.Tasks)))
	}
	if p.Array != "" {
		sets = append(sets, "slurm.array="+p.Array)
	}
	if p.Time > 0 { // requeue.lead is a part of it
		sets = append(sets, "slurm.time="+slurm.FormatTime(max(p.Time, time.Second)))
	}
	return sets
}

// Check returns an error for what cannot be simulated of a job. element says that the job is an element of an array, whatever the job
// itself says.
func (p Pretend) Check(job *jobfile.Job, element bool) error {
	if job.Nodes() > sim.MaxNodes {
		return usage.Errorf("simulate pretends up to %d nodes, not %d", sim.MaxNodes, job.Nodes())
	}
	array, err := job.Array()
	switch {
	case len(job.Components) > 0 && (p.Nodes != "" || p.HetNodes != nil || p.Tasks != nil):
		return &usage.Error{
			Message: "--nodes, --node-names, --nodelist, --het-nodes and lists of ranks do not apply to a job with components, " +
				"which have their own numbers of nodes",
			Hint: "--set 'slurm.component=[{nodes = 1}]' sets other components",
		}
	case err != nil && !element:
		return usage.Errorf("slurm.array: %v", err)
	case (array != nil || element) && p.HetNodes != nil:
		return usage.Errorf("--het-nodes: Slurm does not take arrays of heterogeneous jobs")
	}
	a, err := p.Allocation(job, 1)
	if err != nil {
		return &usage.Error{Message: err.Error()}
	}
	if err := errors.Join(a.Validate(), a.CheckFaults(p.Faults, p.ranks(job, a))); err != nil {
		return &usage.Error{Message: err.Error()}
	}
	return nil
}

// ranks returns the number of a job's ranks, or the largest possible number if only its nodes determine it.
func (p Pretend) ranks(job *jobfile.Job, a sim.Allocation) int {
	n := job.Launch.NprocPerNode
	if a.Tasks != nil {
		return len(a.StepTasks())
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

// Words returns simulate's flags that produce the same pretend job again: its shape and Slurm's times. Faults are not among them, nor is
// anything that the job already has as overrides (sets).
func (p Pretend) Words() []string {
	var words []string
	add := func(name, value string) {
		if value != "" {
			words = append(words, "--"+name+"="+value)
		}
	}
	span := func(name string, d, otherwise time.Duration) {
		if d != otherwise {
			add(name, d.String())
		}
	}
	add("node-names", p.Names)
	add("nodelist", p.Nodelist)
	add("tasks-per-node", countsText(p.Tasks))
	add("distribution", string(p.Distribution))
	add("het-nodes", countsText(p.HetNodes))
	d := DefaultPretend()
	if p.Release != d.Release {
		add("slurm", string(p.Release))
	}
	span("time", p.Time, d.Time)
	span("kill-wait", p.KillWait, d.KillWait)
	span("grace-time", p.GraceTime, d.GraceTime)
	return words
}

// countsText formats numbers for ParseCounts.
func countsText(list []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), ",")
}

// Keep removes from a run's sets the keys of flags that no longer have a value, so that the job file decides again.
func (p Pretend) Keep(sets []string, was Pretend) []string {
	gone := slices.Clone(p.Emptied)
	for _, set := range was.Sets() {
		gone = append(gone, jobfile.SetKey(set))
	}
	for _, set := range p.Sets() {
		gone = slices.DeleteFunc(gone, func(key string) bool { return key == jobfile.SetKey(set) })
	}
	return slices.DeleteFunc(slices.Clone(sets), func(set string) bool { return slices.Contains(gone, jobfile.SetKey(set)) })
}

// Allocation returns the allocation of the job's first run.
func (p Pretend) Allocation(job *jobfile.Job, id int) (sim.Allocation, error) {
	a := sim.Allocation{
		Release: p.Release, JobID: id, JobName: job.Name, Nodes: sim.PretendNodes(job.Nodes()), WorkDir: job.WorkDir,
		Layout: p.Distribution,
		CPUs:   []int{cpusPerNode(job)}, TasksPerNode: 1, CPUsPerTask: cpusPerNode(job),
	}
	if p.Names != "" {
		nodes, err := sim.NamedNodes(p.Names)
		if err != nil {
			return a, fmt.Errorf("--node-names: %w", err)
		}
		a.Nodes, a.Nodelist = nodes, p.Names
	}
	if p.Nodelist != "" {
		names, err := slurm.ExpandHostlist(p.Nodelist, sim.MaxNodes)
		if err != nil {
			return a, fmt.Errorf("--nodelist: %w", err)
		}
		for _, name := range names {
			i := slices.IndexFunc(a.Nodes, func(n sim.Node) bool { return n.Name == name })
			if i < 0 {
				return a, fmt.Errorf("--nodelist names %s, which is not in --node-names", name)
			}
			a.Step = append(a.Step, i)
		}
		slices.Sort(a.Step) // Slurm uses the order of the job's nodes
	}
	nodes := len(a.Nodes)
	if a.Step != nil {
		nodes = len(a.Step)
	}
	if nodes != job.Nodes() { // the flags set it, but a resume can override it
		return a, fmt.Errorf("--node-names and --nodelist give the step %s, but slurm.nodes is %d", text.Plural(nodes, "node"), job.Nodes())
	}
	switch {
	case job.Launch.Mode == "task":
		var err error
		if a, err = p.taskMode(a, job); err != nil {
			return a, err
		}
	case p.Distribution != "":
		return a, errors.New("--distribution has no effect, because each node has only one task, the agent; " +
			`set launch.mode = "task" to have srun start the ranks`)
	}
	for _, n := range p.HetNodes {
		a.Components = append(a.Components, sim.Component{Nodes: n, TasksPerNode: a.TasksPerNode, CPUsPerTask: a.CPUsPerTask})
	}
	if len(job.Components) > 0 {
		a.CPUs = nil
		for _, part := range job.Parts() {
			a.Components = append(a.Components, component(part))
			a.CPUs = append(a.CPUs, slices.Repeat([]int{cpusPerNode(part)}, part.Nodes())...)
		}
	}
	return a, nil
}

// component returns a component of a heterogeneous job, as its batch script requests it.
func component(part *jobfile.Job) sim.Component {
	c := sim.Component{Nodes: part.Nodes(), TasksPerNode: 1, CPUsPerTask: cpusPerNode(part)}
	if part.Launch.Mode == "task" {
		c.TasksPerNode, c.CPUsPerTask = part.MaxNproc(), part.CPUsPerRank()
	}
	return c
}

// taskMode makes srun start one task for each rank.
func (p Pretend) taskMode(a sim.Allocation, job *jobfile.Job) (sim.Allocation, error) {
	n := job.Launch.NprocPerNode
	if n.Word != "" {
		return a, fmt.Errorf("launch.nproc_per_node is %q, but must be a number if srun starts the ranks (launch.mode = \"task\")",
			n.Word)
	}
	a.Tasks = n.Counts
	if p.Tasks != nil {
		a.Tasks = p.Tasks
	}
	if len(a.Tasks) == 1 {
		a.Tasks = slices.Repeat(a.Tasks, job.Nodes())
	}
	a.TasksPerNode, a.CPUsPerTask = job.MaxNproc(), job.CPUsPerRank()
	return a, nil
}

func cpusPerNode(job *jobfile.Job) int {
	return max(1, job.MaxNproc()) * max(1, job.CPUsPerRank())
}
