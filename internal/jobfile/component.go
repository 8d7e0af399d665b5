package jobfile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
)

// A Component is one of the further components of a heterogeneous job, [[slurm.component]]. The first one is [slurm] itself, which
// messages call component 0, as srun's --het-group does.
type Component struct {
	Slurm slurm.Options `json:"slurm"` // only List is used
	// NprocPerNode is how many ranks each node of the component runs; 0: as launch.nproc_per_node says. If some component has its own
	// number, launch.nproc_per_node gets a number for each node of the job.
	NprocPerNode int `json:"nproc_per_node,omitempty"`
}

// componentRows are the keys of [[slurm.component]].
func componentRows() []keyRow {
	const table = "slurm.component"
	rows := []keyRow{
		{key: table, item: func(j *Job) { j.Components = append(j.Components, Component{}) }, advise: ofAllComponents},
		{key: table + ".nproc_per_node", read: wholeNumber(1, func(j *Job) *int { return &componentOf(j).NprocPerNode })},
	}
	for _, key := range slurm.ComponentKeys() {
		rows = append(rows, keyRow{key: table + "." + key, read: componentOption})
	}
	return rows
}

// componentOf returns the component that is being read.
func componentOf(j *Job) *Component {
	if len(j.Components) == 0 {
		return new(Component)
	}
	return &j.Components[len(j.Components)-1]
}

// componentOption reads one option of sbatch that a component sets for itself.
func componentOption(j *Job, key toml.Key, v any) error {
	o, err := parseOption(key, v)
	if c := componentOf(j); err == nil && o.Name != "" {
		c.Slurm.List = append(c.Slurm.List, o)
	}
	return err
}

// ofAllComponents says why [[slurm.component]] lacks a key that [slurm] has.
func ofAllComponents(key string) error {
	if slices.Contains(slurm.OptionKeys(), key) {
		return fmt.Errorf("key slurm.component.%s: all components of a job share %s: write it in [slurm]", key, key)
	}
	if err := notHere(key); !errors.Is(err, slurm.ErrUnknownOption) {
		return err
	}
	return nil
}

// tablesIn returns the tables of a list of tables.
func tablesIn(v any) (tables []map[string]any, ok bool) {
	switch v := v.(type) {
	case []map[string]any:
		return v, true
	case []any:
		for _, item := range v {
			table, isTable := item.(map[string]any)
			if !isTable {
				return nil, false
			}
			tables = append(tables, table)
		}
		return tables, true
	}
	return nil, false
}

// Parts returns the components of a heterogeneous job, each as a job of only that component. For any other job it returns the job itself.
func (j *Job) Parts() []*Job {
	if len(j.Components) == 0 {
		return []*Job{j}
	}
	left := j.Launch.NprocPerNode.Counts
	part := func(options slurm.Options) *Job {
		p := *j
		p.Slurm, p.Components = options, nil
		if nodes := p.Nodes(); len(left) > 1 {
			here := min(nodes, len(left))
			p.Launch.NprocPerNode.Counts, left = alike(left[:here]), left[here:]
		}
		return &p
	}
	parts := []*Job{part(j.Slurm)}
	for _, c := range j.Components {
		parts = append(parts, part(slurm.Options{List: c.Slurm.List, Skip: j.Slurm.Skip}))
	}
	return parts
}

// alike returns one number if all counts are the same, and otherwise counts.
func alike(counts []int) []int {
	if len(slices.Compact(slices.Clone(counts))) == 1 {
		return counts[:1]
	}
	return counts
}

// countRanks sets the number of ranks of each node of a heterogeneous job, if a component has its own number.
func (c *checker) countRanks(root *position) {
	j := c.job
	key := toml.Key{"slurm", "component", "nproc_per_node"}
	own := slices.IndexFunc(j.Components, func(c Component) bool { return c.NprocPerNode > 0 })
	nodes, _ := j.Slurm.Get("nodes")
	if _, _, isRange := nodeRange(nodes); own < 0 || isRange || c.tooManyNodes(root) ||
		!c.hasNoFault(key.String(), "slurm.nodes", "slurm.component.nodes", "launch.nproc_per_node") {
		return
	}
	if len(j.Launch.NprocPerNode.Counts) != 1 {
		c.fault(root.at(key[:2]).item(own).below(key[2]), key, "%s cannot be combined with a list or a word in launch.nproc_per_node: "+
			"write there the number of ranks of each of [slurm]'s own nodes", key)
		return
	}
	all := j.Launch.NprocPerNode.Counts[0]
	counts := slices.Repeat([]int{all}, (Component{Slurm: j.Slurm}).nodes())
	for _, c := range j.Components {
		n := c.NprocPerNode
		if n == 0 {
			n = all
		}
		counts = append(counts, slices.Repeat([]int{n}, c.nodes())...)
	}
	j.Launch.NprocPerNode.Counts = alike(counts)
}

// tooManyNodes reports whether the components have more nodes than Slurm allows, and adds that as a fault.
func (c *checker) tooManyNodes(root *position) bool {
	if c.job.Nodes() <= slurm.MaxNodes {
		return false
	}
	key := toml.Key{"slurm", "component"}
	c.fault(root.at(key), key, "%s: the job has %d nodes, but Slurm gives a job at most %d", key, c.job.Nodes(), slurm.MaxNodes)
	return true
}

// nodes returns how many nodes the component asks for.
func (c Component) nodes() int {
	return (&Job{Slurm: c.Slurm}).Nodes()
}

// checkComponents checks what cannot be combined with a heterogeneous job.
func (c *checker) checkComponents(root *position) {
	j := c.job
	key := toml.Key{"slurm", "component"}
	if len(j.Components) == 0 {
		return
	}
	_, array := j.Slurm.Get("array")
	at := root.at(key)
	if n := len(j.Components); n >= slurm.MaxHetSize {
		c.fault(at, key, "%s: with [slurm] these are %d components, but Slurm gives a job at most %d", key, n+1, slurm.MaxHetSize)
	}
	if array && !j.Slurm.Skips("array") {
		c.fault(at, key, "%s: Slurm does not take arrays of heterogeneous jobs: leave slurm.array and [sweep] out, and submit a job for "+
			"each", key)
	}
	if text, _ := j.Slurm.Get("nodes"); c.hasNoFault("slurm.nodes") {
		if _, _, ok := nodeRange(text); ok {
			c.fault(at, key, "%s: a heterogeneous job cannot have a range of nodes, slurm.nodes = %q: write one number", key, text)
		}
	}
	if j.Launch.MinNodes > 0 {
		c.fault(at, key, "%s: a heterogeneous job cannot go on with fewer nodes: leave launch.min_nodes out", key)
	}
	for i, part := range j.Parts()[1:] {
		c.checkComponent(part, root.at(key).item(i))
	}
}

// checkComponent checks what holds between the keys of one component and those of the job.
func (c *checker) checkComponent(part *Job, at *position) {
	if !c.hasNoFault("launch.mode", "launch.nproc_per_node") {
		return
	}
	key := toml.Key{"slurm", "component"}
	if part.Launch.Mode == "task" && len(part.Launch.NprocPerNode.Counts) > 1 {
		c.fault(at, key, `%s: if launch.mode is "task", srun starts the same number of tasks on every node of a component`, key)
	}
	c.checkTasks(part, at, key)
}
