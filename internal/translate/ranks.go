package translate

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/slurm"
)

// mode returns launch.mode: "task" if srun starts several ranks on each node, the same number on each.
func (t *translation) mode() string {
	l := &t.line
	tasks := t.stepTasks()
	if l.usesSrun && !l.mpi && !l.isLauncher && len(tasks) == 1 && tasks[0] > 1 {
		return "task"
	}
	return "agent"
}

// stepTasks returns the number of tasks that srun starts on each node, from its own options or the script's.
func (t *translation) stepTasks() []int {
	var given []string
	for _, g := range t.line.srun {
		given = append(given, g.Name)
	}
	if !slices.Contains(given, "ntasks") && !slices.Contains(given, "ntasks-per-node") && !slices.Contains(given, "nodes") {
		return t.asked.tasks
	}
	step := newRequest(t.line.srun, t.asked.nodes)
	if len(step.tasks) == 1 && step.tasks[0] == 1 && !slices.Contains(given, "ntasks") && !slices.Contains(given, "ntasks-per-node") {
		return t.asked.tasks
	}
	if step.nodes != t.asked.nodes {
		return []int{step.most()}
	}
	return step.tasks
}

// ranks returns the number of ranks on each node.
func (t *translation) ranks() (counts []int, word, why string) {
	l := &t.line
	tasks := t.stepTasks()
	switch {
	case l.perNode.word == "gpu" && t.asked.gpus > 0:
		return []int{t.asked.gpus}, "", "one per GPU"
	case l.perNode.word != "":
		return nil, l.perNode.word, ""
	case l.perNode.n > 0:
		return []int{l.perNode.n}, "", ""
	case l.total > 0 && l.total%t.asked.nodes == 0:
		return []int{l.total / t.asked.nodes}, "", ""
	case l.total > 0:
		l.notes = append(l.notes, fmt.Sprintf("not translated: %d ranks on %d nodes: check launch.nproc_per_node", l.total, t.asked.nodes))
		return []int{max(1, l.total/t.asked.nodes)}, "", ""
	case l.isLauncher:
		return []int{1}, "", "torchrun's default without --nproc-per-node"
	case l.usesSrun:
		return tasks, "", "one rank per task"
	}
	return []int{1}, "", ""
}

// rankKeys writes nodes, ranks and cores. The script counts by tasks, and a job file by ranks.
func (t *translation) rankKeys() {
	l, asked := &t.line, t.asked
	g, given := asked.get("nodes")
	comment := ""
	switch {
	case given && asked.ranged:
		comment = "the least of " + quoted(g.Word()) + "; write the range if the program supports any number of nodes"
	case !given && asked.ranged:
		comment = fmt.Sprintf("the script lets Slurm choose, for %d tasks", asked.total())
	}
	t.slurm.put("nodes", asked.nodes, comment)
	counts, word, why := t.ranks()
	if word != "" {
		t.launch.put("nproc_per_node", word, why)
	} else if len(counts) == 1 {
		t.launch.put("nproc_per_node", counts[0], why)
	} else {
		t.launch.put("nproc_per_node", counts, why)
	}
	if t.mode() == "task" {
		t.launch.put("mode", "task", `srun starts each rank, as before; "agent" can restart ranks within the job`)
	}
	if l.isLauncher && l.usesSrun && t.stepTasks()[0] > 1 {
		l.notes = append(l.notes,
			fmt.Sprintf("the script has %d tasks per node, each of which would start a launcher; here one agent does",
				t.stepTasks()[0]))
	}
	if !l.usesSrun && asked.nodes > 1 && !t.isCommand {
		l.notes = append(l.notes, "the script starts this only on its first node; here it runs on all nodes of slurm.nodes")
	}
	if n := newRequest(l.srun, asked.nodes).nodes; n != asked.nodes {
		l.notes = append(l.notes,
			fmt.Sprintf("srun's step is on %d nodes, but the job has %d; here it runs on all of them", n, asked.nodes))
	}
	if l.nodes > 0 && l.nodes != asked.nodes {
		l.notes = append(l.notes, fmt.Sprintf("the launcher's number of nodes, %d, differs from that of the job, %d, which is used here",
			l.nodes, asked.nodes))
	}
	t.coreKeys(counts)
	t.componentKeys(counts)
}

// coreKeys writes cpus_per_task, which in a job file is per rank.
func (t *translation) coreKeys(counts []int) {
	g, given := t.asked.get("cpus-per-task")
	tasks, line := t.asked.most(), g.Line
	if t.mode() == "task" && len(counts) == 1 && counts[0] == tasks {
		if t.asked.cpus > 0 {
			t.slurm.put("cpus_per_task", t.asked.cpus, "")
		}
		return
	}
	if given && t.asked.cpus == 0 {
		t.slurm.note(line, "not translated: %s", quoted(g.Word()))
		return
	}
	if !given && tasks == 1 {
		return // ddpbatch requests a core for each rank
	}
	cores := tasks * max(1, t.asked.cpus)
	if len(counts) == 0 {
		t.slurm.note(line, "not translated: %s: %d cores per node, but the number of ranks is known only on the node: "+
			"write launch.nproc_per_node",
			quoted(g.Word()), cores)
		return
	}
	ranks := slices.Max(counts)
	switch each := cores / ranks; {
	case each == 0 && t.asksForCores(): // unchanged
	case each == 0:
		t.slurm.note(line, "%d ranks get one core each, but the script requests %d per node", ranks, cores)
	case each*ranks != cores:
		t.slurm.put("cpus_per_task", each, fmt.Sprintf("per rank: %d cores of a node for %d ranks", cores, ranks))
	case each == t.asked.cpus || !given && each == 1:
		if given {
			t.slurm.put("cpus_per_task", each, "")
		}
	default:
		t.slurm.put("cpus_per_task", each, fmt.Sprintf("per rank: the script requests %d cores per node", cores))
	}
}

// asksForCores reports whether options other than cpus-per-task set the number of cores.
func (t *translation) asksForCores() bool {
	return slices.ContainsFunc(t.asked.options, func(g slurm.Given) bool { return slices.Contains(saysCores, g.Name) })
}

var saysCores = []string{"cpus-per-gpu", "mincpus", "tres-per-task", "overcommit"}

// launchKeys writes the rest of [launch].
func (t *translation) launchKeys(command []string) {
	l := &t.line
	t.launch.put("command", command, "")
	if l.maxRestarts > 0 {
		t.launch.put("max_restarts", l.maxRestarts, "")
	}
	if l.minNodes > 0 && l.minNodes <= t.asked.nodes && t.mode() == "agent" && len(t.components) == 0 {
		t.launch.put("min_nodes", l.minNodes, "")
	}
	if l.numa != "" {
		t.launch.put("numa", l.numa, "")
	}
	if l.grace != "" {
		t.launch.put("grace", l.grace, "")
	}
	t.srunNotes()
	l.notes = append(l.notes, t.items[t.at].notes...)
	if l.mpi {
		l.notes = append(l.notes, "ranks get RANK and WORLD_SIZE but no MPI: each rank of a program that calls MPI_Init would be alone")
	}
	if len(command) > 1 && slices.Contains(shells, command[0]) && strings.HasSuffix(command[1], ".sh") {
		l.notes = append(l.notes, quoted(command[1])+" was not examined: remove a launcher in it, because ddpbatch starts the ranks")
	}
	for _, text := range l.notes {
		t.launch.note(l.line, "%s", text)
	}
}

// srunNotes describes srun's options other than those for numbers of tasks.
func (t *translation) srunNotes() {
	var left []string
	var containers []slurm.Given
	for _, g := range t.asked.options {
		if isPyxis(g) {
			containers = append(containers, g)
		}
	}
	for _, g := range t.line.srun {
		word := quoted(t.readable(g.Word()))
		switch {
		case slices.Contains([]string{"nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "jobid", "het-group"}, g.Name):
		case g.Name == "export":
			t.exportOption(g)
		case g.Name == "chdir":
			t.launch.note(t.line.line, "not translated: %s: set workdir", word)
		case isPyxis(g):
			containers = append(containers, g)
		case g.Name == "gpus-per-task" && g.Value == "1" && t.mode() == "task":
			t.launch.put("gpus", "one", "each rank sees one GPU: srun's "+word)
		case g.Name == "mpi":
			t.line.mpi = t.line.mpi || g.Value != "none" && !t.line.isLauncher
			fallthrough
		default:
			left = append(left, word)
		}
	}
	if len(left) > 0 {
		t.line.notes = append(t.line.notes, "ddpbatch calls srun itself, without the script's "+strings.Join(left, " "))
	}
	if left := t.pyxis(containers); len(left) > 0 {
		t.line.notes = append(t.line.notes, "not translated: "+strings.Join(left, " ")+
			" of the container: see container.mounts and container.args")
	}
}
