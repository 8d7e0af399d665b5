package jobfile

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// checkRules checks what holds between keys. A rule stays silent where one of its keys is at fault
// already.
func (c *checker) checkRules(values map[string]any, root *position) {
	j := c.job
	counts := j.Launch.NprocPerNode.Counts
	nprocKey := toml.Key{"launch", "nproc_per_node"}
	nproc := root.at(nprocKey)

	c.checkNodeRange(root)
	if len(counts) > 1 && len(counts) != j.Nodes() && c.hasNoFault("slurm.nodes", "slurm.component.nodes", "launch.nproc_per_node") {
		of := "slurm.nodes is"
		if len(j.Components) > 0 {
			of = "the nodes of all components are"
		}
		c.fault(nproc, nprocKey, "%s lists %d nodes, and %s %d: give one number per node, or a single one", nprocKey,
			len(counts), of, j.Nodes())
	}
	first := j.Parts()[0].Launch.NprocPerNode.Counts // of each component there is one number
	if len(first) != 1 && j.Launch.Mode == "task" && c.hasNoFault("launch.mode", "launch.nproc_per_node") {
		c.fault(nproc, nprocKey, `%s must be one number where launch.mode is "task": srun starts the same number of tasks on every node`,
			nprocKey)
	}
	if j.Setup.Venv != "" && j.Setup.Conda != "" {
		conda := toml.Key{"setup", "conda"}
		c.fault(root.at(conda), conda, "setup.venv and setup.conda exclude each other: keep one")
	}
	c.checkContainer(values, root)
	c.addErrors(root, "", j.Setup.Validate())
	c.addErrors(root, "", j.Code.Validate())
	c.addErrors(root, "launch.", j.Launch.Validate())
	c.addErrors(root, "mpi.", j.MPI.Validate())
	c.addErrors(root, "checkpoint.", j.Checkpoint.Validate())
	c.warnOfDeltas(root)
	c.checkPerTask(root)
	c.checkComponents(root)
	c.checkMinNodes(root)
	c.checkChain(root)
	c.checkClusters(root)
	c.checkRequeue(values, root)
	if j.Builtin() && c.hasNoFault("launch.command", "train") {
		c.checkTrainer(values, root)
	}
	c.warnOfMistakes(values, root)
}

// warnOfDeltas warns of deltas that no save will be: with a node-local tier all are full ones (checkpoint/distributed). The job runs all
// the same.
func (c *checker) warnOfDeltas(root *position) {
	delta := toml.Key{"checkpoint", "delta"}
	if n := c.job.Checkpoint.Delta; n > 0 && c.job.Checkpoint.Local != "" && c.hasNoFault(delta.String(), "checkpoint.local") {
		c.warn(root, delta, "%s = %d counts for nothing beside checkpoint.local: all checkpoints on a node-local disk are full ones; "+
			"leave one of them out", delta, n)
	}
}

// checkNodeRange checks what does not go with a range of nodes, whose number only the job knows once it runs.
func (c *checker) checkNodeRange(root *position) {
	key := toml.Key{"slurm", "nodes"}
	if c.job.LeastNodes() == c.job.Nodes() || !c.hasNoFault(key.String(), "launch.mode", "launch.nproc_per_node") {
		return
	}
	value, _ := c.job.Slurm.Get("nodes")
	switch {
	case c.job.Launch.Mode == "task":
		c.fault(root.at(key), key, `%s = %q needs launch.mode = "agent": in "task" mode srun must be told how many tasks there are`, key,
			value)
	case len(c.job.Launch.NprocPerNode.Counts) > 1:
		c.fault(root.at(key), key, "%s = %q does not go with a list in launch.nproc_per_node, which has a number for each node: "+
			"write one number for all, or how many nodes there are", key, value)
	}
}

// checkMinNodes checks launch.min_nodes against what it is the least of.
func (c *checker) checkMinNodes(root *position) {
	key := toml.Key{"launch", "min_nodes"}
	least := c.job.Launch.MinNodes
	if least == 0 || !c.hasNoFault(key.String(), "slurm.nodes", "launch.mode") {
		return
	}
	switch {
	case least > c.job.Nodes():
		c.fault(root.at(key), key, "%s = %d is more than slurm.nodes = %d", key, least, c.job.Nodes())
	case least > c.job.LeastNodes():
		c.fault(root.at(key), key, "%s = %d is more than the %d that slurm.nodes lets the job start with", key, least, c.job.LeastNodes())
	case c.job.Launch.Mode == "task":
		c.fault(root.at(key), key, `%s needs launch.mode = "agent": in "task" mode a rank's place is Slurm's, and cannot change`, key)
	}
}

// checkChain checks what does not go with a chain. Elements of an array end at different times, and Slurm has no dependency by which the
// elements of one array would each wait for their own of several others.
func (c *checker) checkChain(root *position) {
	key := toml.Key{"slurm", "chain"}
	if c.job.Links() < 2 || !c.hasNoFault(key.String()) {
		return
	}
	if _, array := c.job.Slurm.Get("array"); array && !c.job.Slurm.Skips("array") && c.hasNoFault("slurm.array") {
		c.fault(root.at(key), key,
			"%s = %d: the elements of an array have no chain; leave slurm.array out and submit a job for each, or leave %s out",
			key, c.job.Chain, key)
	}
	if c.job.Slurm.Skips("dependency") {
		c.fault(root.at(key), key,
			"%s = %d needs sbatch's --dependency, which slurm.skip leaves out: each link waits for the one before it",
			key, c.job.Chain)
	}
}

// checkPerTask checks what [slurm] counts per task. In agent mode Slurm's tasks are the agents, one a node, and
// not the ranks: cpus_per_task is turned into the cores of all ranks of a node, and other
// options cannot be.
func (c *checker) checkPerTask(root *position) {
	if c.job.Launch.Mode != "agent" || !c.hasNoFault("launch.mode", "launch.nproc_per_node") {
		return
	}
	c.checkTasks(c.job, root.at(toml.Key{"slurm"}), toml.Key{"slurm"})
	extra := toml.Key{"slurm", "extra"}
	if err := slurm.CheckAgentWords(c.job.Slurm.Extra); err != nil && c.hasNoFault(extra.String()) {
		c.fault(root.at(extra), extra, "%s: %v", extra, err)
	}
}

// checkTasks checks what table, [slurm] or a component's, counts per task in agent mode.
func (c *checker) checkTasks(j *Job, at *position, table toml.Key) {
	if j.Launch.Mode != "agent" {
		return
	}
	if j.CPUsPerRank() > 0 && len(j.Launch.NprocPerNode.Counts) == 0 {
		key := below(table, "cpus_per_task")
		c.fault(at.below("cpus_per_task"), key,
			"%s is per rank, so that launch.nproc_per_node must be a number: write one, or leave %s out "+
				"and ask for whole nodes with slurm.exclusive = true", key, key)
	}
	for _, name := range []string{"gpus_per_task", "tres_per_task"} {
		if _, given := j.Slurm.Get(name); given {
			key := below(table, name)
			c.fault(at.below(name), key,
				`%s would count for all ranks of a node where launch.mode is "agent", as srun starts one task a node: `+
					"write %s.gpus_per_node", key, table)
		}
	}
	const perSocket = "gpus_per_socket"
	if _, given := j.Slurm.Get(perSocket); given {
		key := below(table, perSocket)
		c.fault(at.below(perSocket), key,
			`%s would count for the sockets of srun's one task a node where launch.mode is "agent", and not for `+
				"those of the node: write %s.gpus_per_node", key, table)
	}
}

// checkTrainer checks that the built-in trainer is told what to train, on what.
func (c *checker) checkTrainer(values map[string]any, root *position) {
	train, given := values["train"].(map[string]any)
	if !given {
		c.fault(root, toml.Key{"train"}, "a job needs [train], for the built-in trainer, or launch.command, for one of your own")
		return
	}
	for _, name := range []string{"model", "data"} {
		if train[name] == nil {
			c.missing(root.below("train"), toml.Key{"train"}, name)
		}
	}
	c.addErrors(root, "train.", c.job.Train.Validate())
	c.checkMemory(root)
	if best := (toml.Key{"checkpoint", "keep_best"}); c.job.Checkpoint.KeepBest > 0 && c.job.Train.Evaluate.Best == "" &&
		c.hasNoFault(best.String(), "train.evaluate.best") {
		c.fault(root.at(best), best, `%s needs train.evaluate.best, which says by what: write "loss" or "accuracy"`, best)
	}
}

// checkMemory checks that one thread at least has the memory to encode checkpoints. What ddp.compress keeps comes on top, and is known only
// to the trainer.
func (c *checker) checkMemory(root *position) {
	key := toml.Key{"checkpoint", "memory"}
	memory := c.job.Checkpoint.Memory
	least := trainer.LeastMemory(c.job.Checkpoint.Replicate)
	if 0 < memory && memory < least && c.job.Checkpoint.Codec != "none" &&
		c.hasNoFault(key.String(), "checkpoint.codec", "checkpoint.replicate") {
		const mega = 1 << 20
		needs := (least + mega - 1) / mega
		c.fault(root.at(key), key, "%s is %.3gM, and one thread takes %dM to encode: raise it to %dM or more, or leave it out",
			key, float64(memory)/mega, needs, needs)
	}
}

// addErrors notes what another package says is wrong with its part of the job: one error or several joined, each of which begins
// with its key, below prefix.
func (c *checker) addErrors(root *position, prefix string, err error) {
	if err == nil {
		return
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		msg := prefix + err.Error()
		dotted := msg[:strings.IndexAny(msg+" ", " :[")]
		if key := toml.Key(strings.Split(dotted, ".")); c.hasNoFault(dotted) {
			c.fault(root.at(key), key, "%s", msg)
		}
	}
}

// hasNoFault reports whether none of the keys, nor any table round them, has a fault.
func (c *checker) hasNoFault(keys ...string) bool {
	for _, key := range keys {
		for ; key != ""; key = key[:max(0, strings.LastIndexByte(key, '.'))] {
			if c.bad[key] {
				return false
			}
		}
	}
	return true
}

func (c *checker) warn(root *position, key toml.Key, format string, args ...any) {
	c.warnings = append(c.warnings, finding{root.at(key), key, fmt.Sprintf(format, args...)})
}
