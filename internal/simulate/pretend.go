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

// Pretend is what a simulated job is like, beyond its job file: the shape of the allocation, and what befalls it.
type Pretend struct {
	Nodes, Nproc string // over the job's own; "": as it says
	Names        string // host list of the job's nodes; "": node1, node2, ...
	Nodelist     string // of those, the ones that the step runs on; "": all
	Tasks        []int  // how many ranks srun starts on each node; nil: it starts one agent on each, or as the job says
	HetNodes     []int  // how many nodes each component of a heterogeneous job has; nil: the job is not one
	Distribution sim.Layout
	Release      sim.Release   // of Slurm
	Array        string        // over the job's own
	Time         time.Duration // the job's time; 0: none
	KillWait     time.Duration
	GraceTime    time.Duration // of a preemption
	Faults       []sim.Fault
	Emptied      []string // keys of the job file whose flags were given without a value
	Quiet        bool     // what ranks print goes to the job's log alone
}

// DefaultPretend is a job to which nothing happens.
func DefaultPretend() Pretend {
	return Pretend{Release: sim.Slurm2205, KillWait: sim.KillWait, GraceTime: sim.KillWait}
}

// CountNodes finds out the number of nodes where other flags tell it.
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
		return usage.Errorf("--nodes is %s, and %s names %s", p.Nodes, flag, text.Plural(count, "node"))
	}
	if p.Nodelist != "" && p.Names == "" {
		return &usage.Error{Message: "--nodelist picks from the nodes that --node-names gives to the job", Hint: "say both"}
	}
	return nil
}

// ParseCounts reads numbers from 1 with commas between; none of an empty text.
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

// Sets are the overrides of the job file that the flags amount to.
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

// Check says what cannot be pretended of a job; of one that is an element of an array, whatever the job itself says.
func (p Pretend) Check(job *jobfile.Job, element bool) error {
	if job.Nodes() > sim.MaxNodes {
		return usage.Errorf("simulate pretends up to %d nodes, not %d", sim.MaxNodes, job.Nodes())
	}
	array, err := job.Array()
	switch {
	case len(job.Components) > 0 && (p.Nodes != "" || p.HetNodes != nil || p.Tasks != nil):
		return &usage.Error{
			Message: "--nodes, --node-names, --nodelist, --het-nodes and lists of ranks are not for a job with components, " +
				"which say how many nodes they have",
			Hint: "--set 'slurm.component=[{nodes = 1}]' makes others",
		}
	case err != nil && !element:
		return usage.Errorf("slurm.array: %v", err)
	case (array != nil || element) && p.HetNodes != nil:
		return usage.Errorf("--het-nodes: Slurm takes no array of heterogeneous jobs")
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

// ranks is how many ranks a job has; as many as there may be where only its nodes can tell.
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

// Words are simulate's flags that make the same pretend job once more: its shape and Slurm's times. What befell it is not among them, nor
// what stands in the job already (sets).
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

// countsText is what ParseCounts reads.
func countsText(list []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), ",")
}

// Keep leaves out of a run's sets those of the keys that flags were about which have no value any more: there the job file has its say
// again.
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

// Allocation is the job's, in its first run.
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
		return a, fmt.Errorf("--node-names and --nodelist give the step %s, and slurm.nodes is %d", text.Plural(nodes, "node"), job.Nodes())
	}
	switch {
	case job.Launch.Mode == "task":
		var err error
		if a, err = p.taskMode(a, job); err != nil {
			return a, err
		}
	case p.Distribution != "":
		return a, errors.New(`--distribution deals out the tasks of a node, of which there is one: the agent; write launch.mode = "task" to have srun start the ranks`)
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

// component is one of a heterogeneous job, as its batch script asks for it.
func component(part *jobfile.Job) sim.Component {
	c := sim.Component{Nodes: part.Nodes(), TasksPerNode: 1, CPUsPerTask: cpusPerNode(part)}
	if part.Launch.Mode == "task" {
		c.TasksPerNode, c.CPUsPerTask = part.MaxNproc(), part.CPUsPerRank()
	}
	return c
}

// taskMode has srun start one task for each rank.
func (p Pretend) taskMode(a sim.Allocation, job *jobfile.Job) (sim.Allocation, error) {
	n := job.Launch.NprocPerNode
	if n.Word != "" {
		return a, fmt.Errorf("launch.nproc_per_node is %q, and srun wants numbers where it starts the ranks (launch.mode = \"task\")",
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
