package jobfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// checkRules checks the rules between keys. It skips a rule if one of its keys already has a
// fault.
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
		c.fault(nproc, nprocKey, "%s lists %d nodes, but %s %d: write one number for each node, or a single one", nprocKey,
			len(counts), of, j.Nodes())
	}
	first := j.Parts()[0].Launch.NprocPerNode.Counts // further components have one number each
	if len(first) != 1 && j.Launch.Mode == "task" && c.hasNoFault("launch.mode", "launch.nproc_per_node") {
		c.fault(nproc, nprocKey, `%s must be one number if launch.mode is "task": srun starts the same number of tasks on every node`,
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
	c.checkArray(values, root)
	c.checkChain(root)
	c.checkClusters(root)
	c.checkRequeue(values, root)
	if j.Builtin() && c.hasNoFault("launch.command", "train") {
		c.checkTrainer(values, root)
	}
	c.warnOfMistakes(values, root)
}

// warnOfDeltas warns if deltas are asked for that will not be made: with a node-local tier all checkpoints are full ones
// (checkpoint/distributed). The job runs all the same.
func (c *checker) warnOfDeltas(root *position) {
	delta := toml.Key{"checkpoint", "delta"}
	if n := c.job.Checkpoint.Delta; n > 0 && c.job.Checkpoint.Local != "" && c.hasNoFault(delta.String(), "checkpoint.local") {
		c.warn(root, delta, "%s = %d has no effect with checkpoint.local: all checkpoints on a node-local disk are full ones; "+
			"leave one of them out", delta, n)
	}
}

// checkNodeRange checks what cannot be combined with a range of nodes, whose number is known only once the job runs.
func (c *checker) checkNodeRange(root *position) {
	key := toml.Key{"slurm", "nodes"}
	if c.job.LeastNodes() == c.job.Nodes() || !c.hasNoFault(key.String(), "launch.mode", "launch.nproc_per_node") {
		return
	}
	value, _ := c.job.Slurm.Get("nodes")
	switch {
	case c.job.Launch.Mode == "task":
		c.fault(root.at(key), key, `%s = %q needs launch.mode = "agent": in "task" mode srun must know how many tasks to start`, key,
			value)
	case len(c.job.Launch.NprocPerNode.Counts) > 1:
		c.fault(root.at(key), key, "%s = %q cannot be combined with a list in launch.nproc_per_node, which has a number for each node: "+
			"write one number for all nodes there, or one number of nodes here", key, value)
	}
}

// checkMinNodes checks launch.min_nodes against the job's nodes and mode.
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
		c.fault(root.at(key), key, `%s needs launch.mode = "agent": in "task" mode Slurm places the ranks, which cannot change`, key)
	}
}

// checkArray checks the indices of an array that is not a sweep's, which may be longer. An index above Slurm's default bound is left to
// sbatch, because the site may have raised it.
func (c *checker) checkArray(values map[string]any, root *position) {
	key := toml.Key{"slurm", "array"}
	table, _ := values["slurm"].(map[string]any)
	if _, err := c.job.Array(); table["array"] != nil && err != nil && !errors.Is(err, slurm.ErrLargeIndex) && c.hasNoFault(key.String()) {
		c.fault(root.at(key), key, "slurm.%v", err)
	}
}

// checkChain checks what cannot be combined with a chain. Elements of an array end at different times, and Slurm does not have a dependency
// by which each element of an array waits for the same element of several other arrays.
func (c *checker) checkChain(root *position) {
	key := toml.Key{"slurm", "chain"}
	if c.job.Links() < 2 || !c.hasNoFault(key.String()) {
		return
	}
	if _, array := c.job.Slurm.Get("array"); array && !c.job.Slurm.Skips("array") && c.hasNoFault("slurm.array") {
		c.fault(root.at(key), key,
			"%s = %d: elements of an array cannot have a chain; leave slurm.array out and submit a job for each, or leave %s out",
			key, c.job.Chain, key)
	}
	if c.job.Slurm.Skips("dependency") {
		c.fault(root.at(key), key,
			"%s = %d needs sbatch's --dependency, which slurm.skip leaves out: each link waits for the one before it",
			key, c.job.Chain)
	}
}

// checkPerTask checks what [slurm] counts per task. In agent mode Slurm's tasks are the agents, one a node, and
// not the ranks: ddpbatch converts cpus_per_task into the cores of all ranks of a node, and refuses
// other options.
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
			"%s is per rank, so launch.nproc_per_node must be a number: write one, or leave %s out "+
				"and ask for whole nodes with slurm.exclusive = true", key, key)
	}
	for _, name := range []string{"gpus_per_task", "tres_per_task"} {
		if _, given := j.Slurm.Get(name); given {
			key := below(table, name)
			c.fault(at.below(name), key,
				`%s: with launch.mode = "agent" srun starts one task a node, so the option would count once for all ranks of a node; `+
					"set %s.gpus_per_node instead", key, table)
		}
	}
	const perSocket = "gpus_per_socket"
	if _, given := j.Slurm.Get(perSocket); given {
		key := below(table, perSocket)
		c.fault(at.below(perSocket), key,
			`%s: with launch.mode = "agent" srun starts one task a node, so the option would count the sockets of that task, not `+
				"those of the node; set %s.gpus_per_node instead", key, table)
	}
}

// checkTrainer checks [train], for the built-in trainer.
func (c *checker) checkTrainer(values map[string]any, root *position) {
	train, given := values["train"].(map[string]any)
	if !given {
		c.fault(root, toml.Key{"train"}, "a job needs [train], for the built-in trainer, or launch.command, for your own program")
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
		c.fault(root.at(best), best, `%s needs train.evaluate.best, which says what decides: write "loss" or "accuracy"`, best)
	}
}

// checkMemory checks that at least one thread has enough memory to encode checkpoints. ddp.compress needs additional memory, which only the
// trainer knows.
func (c *checker) checkMemory(root *position) {
	key := toml.Key{"checkpoint", "memory"}
	memory := c.job.Checkpoint.Memory
	least := trainer.LeastMemory(c.job.Checkpoint.Replicate)
	if 0 < memory && memory < least && c.job.Checkpoint.Codec != "none" &&
		c.hasNoFault(key.String(), "checkpoint.codec", "checkpoint.replicate") {
		const mega = 1 << 20
		needs := (least + mega - 1) / mega
		c.fault(root.at(key), key, "%s is %.3gM, but one thread needs %dM to encode: raise it to %dM or more, or leave it out",
			key, float64(memory)/mega, needs, needs)
	}
}

// addErrors adds the errors of another package about its part of the job as faults. err is one error or several joined; each begins
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

// hasNoFault reports whether neither the keys nor the tables around them have a fault.
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
