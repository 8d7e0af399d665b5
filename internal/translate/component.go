package translate

import (
	"errors"
	"fmt"
	"slices"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// A component is a further component of a heterogeneous job.
type component struct {
	asked *request
	section
}

// readComponents takes the further components out of a script's options. It returns an error for options that Slurm does not accept for a
// heterogeneous job.
func (t *translation) readComponents(options []slurm.Given) error {
	nodes := t.asked.nodes
	for part := 1; ; part++ {
		own := slices.DeleteFunc(slices.Clone(options), func(g slurm.Given) bool { return g.Part != part })
		if len(own) == 0 && !slices.ContainsFunc(options, func(g slurm.Given) bool { return g.Part > part }) {
			break
		}
		for i := range own {
			own[i].Part = 0
		}
		c := &component{asked: newRequest(own, 0)}
		t.components, nodes = append(t.components, c), nodes+c.asked.nodes
	}
	_, array := t.asked.get("array")
	switch {
	case len(t.components) == 0:
		return nil
	case array:
		return errors.New("sbatch refuses an array of heterogeneous jobs")
	case len(t.components) >= slurm.MaxHetSize:
		return fmt.Errorf("the script has %d components, but sbatch accepts at most %d", len(t.components)+1, slurm.MaxHetSize)
	case nodes > slurm.MaxNodes:
		return fmt.Errorf("the script requests %d nodes, but Slurm gives a job at most %d", nodes, slurm.MaxNodes)
	}
	return nil
}

// componentKeys writes what the script requests for each further component. counts are the ranks of the first one's nodes.
func (t *translation) componentKeys(counts []int) {
	if len(t.components) == 0 {
		return
	}
	l := &t.line
	switch groups := t.hetGroups(); {
	case len(groups) == 0:
		l.notes = append(l.notes, "the script starts this only on the first component; here it runs on all of them")
	case len(groups) < len(t.components)+1:
		l.notes = append(l.notes, fmt.Sprintf("the script starts this on %s of %d; here it runs on all of them",
			words.Plural(len(groups), "component"), len(t.components)+1))
	}
	for _, c := range t.components {
		c.put("nodes", c.asked.nodes, "")
		if c.asked.ranged {
			c.note(0, "the least number of nodes that the script requests; a component cannot have a range")
		}
		t.componentRanks(c, counts)
		for _, g := range c.asked.options {
			t.componentOption(c, g)
		}
	}
}

// hetGroups returns the components on which srun starts its tasks, "0,2-3". It returns none if srun does not name them, which means the
// first one.
func (t *translation) hetGroups() []int {
	for _, g := range t.line.srun {
		if g.Name == "het-group" {
			if list, err := slurm.ParseArray(g.Value); err == nil {
				return list.Indices
			}
		}
	}
	return nil
}

// cutAtColon keeps only the command that srun starts on its first group of components. After a colon comes a command for other components.
func (t *translation) cutAtColon() {
	l := &t.line
	at := slices.Index(l.command, ":")
	if at < 1 || len(t.components) == 0 || !l.usesSrun {
		return
	}
	l.command = l.command[:at]
	l.notes = append(l.notes, "not translated: the commands after a colon, which srun starts on other components: "+
		"here all ranks run one command")
}

// componentRanks writes the ranks of a component's nodes, and the cores of each rank.
func (t *translation) componentRanks(c *component, counts []int) {
	ranks := 0 // 0: not known
	if len(counts) == 1 {
		ranks = counts[0]
	}
	if t.line.usesSrun && !t.line.isLauncher && t.line.perNode.n == 0 && t.line.perNode.word == "" {
		switch most := c.asked.most(); {
		case len(counts) != 1:
			c.note(0, "not translated: %d ranks on each node: launch.nproc_per_node must be one number for a component to have its own",
				most)
			ranks = 0
		case most != ranks:
			ranks = most
			c.put("nproc_per_node", ranks, "one rank per task")
		}
		if len(c.asked.tasks) > 1 {
			c.note(0, "the script's number of tasks differs between these nodes")
		}
	}
	cores := c.asked.most() * max(1, c.asked.cpus)
	switch {
	case ranks == 0 && c.asked.cpus > 0:
		c.note(0, "not translated: %d cores of each node", cores)
	case ranks > 0 && cores/ranks > 1:
		c.put("cpus_per_task", cores/ranks, "")
	}
}

// componentOption writes one more option of a component.
func (t *translation) componentOption(c *component, g slurm.Given) {
	word := quoted(g.Word())
	switch {
	case slices.Contains([]string{"nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task"}, g.Name):
	case g.Name == "gpus-per-task" && t.mode() == "agent":
		gpusPerTask(&c.section, c.asked, g)
	case t.countsTasks(g):
		c.note(g.Line, "not translated: %s: write gpus_per_node", word)
	case leftOut[g.Name] != "":
		c.note(g.Line, "%s is left out: %s", word, leftOut[g.Name])
	case secretForm().MatchString(g.Value) || holdsSecret(g.Value):
		c.note(g.Line, "not translated: %s: it may hold a secret", word)
	case slices.Contains(slurm.ComponentKeys(), optionKey(g.Name)) && typed(&c.section, g):
	default:
		c.note(g.Line, "not translated: %s: a component has no key for this; [slurm] applies to all components", word)
	}
}
