package jobfile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/container"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/snapshot"
	words "ddpbatch/internal/text"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// Schema is the version of job.toml that this package reads.
const Schema = 1

// Job is a whole job.toml: checked, defaults filled in. It goes into spec.json and comes back from
// it equal; durations are whole nanoseconds there.
type Job struct {
	Schema int    `json:"schema"`
	Name   string `json:"name"`
	// WorkDir is where ranks run, unless the run has a copy of the code (RanksDir), and RunDir the parent of the run directories. Both are
	// absolute.
	WorkDir string `json:"workdir"`
	RunDir  string `json:"run_dir"`
	// ScriptTemplate is rendered instead of templates.Batch; absolute. Empty: none is.
	ScriptTemplate string            `json:"script_template,omitempty"`
	Code           snapshot.Config   `json:"code"`
	Slurm          slurm.Options     `json:"slurm"`
	Components     []Component       `json:"components,omitempty"` // further ones of a heterogeneous job; none: it is not one
	Chain          int               `json:"chain,omitempty"`      // slurm.chain; 0: not said
	Setup          slurm.Setup       `json:"setup"`
	Env            map[string]string `json:"env,omitempty"`      // [setup] env: for the workers, any bytes but NUL
	Container      container.Config  `json:"container,omitzero"` // no runtime: ranks run on the nodes themselves
	Launch         launch.Config     `json:"launch"`
	Requeue        recovery.Policy   `json:"requeue"` // less MaxRestarts: see Policy
	MPI            mpi.Config        `json:"mpi"`
	Train          trainer.Config    `json:"train"`
	Checkpoint     checkpoint.Config `json:"checkpoint"`
	// what the job's elements differ in, and else it is the first; nil: it is one job
	Sweep *Sweep `json:"sweep,omitempty"`

	// CodeDir is where in the run's copy of the code its ranks run, relative to the copy; empty: the run has no copy. SelectCode sets it.
	CodeDir string `json:"code_dir,omitempty"`

	defaults []rundir.DefaultsFile // that the job was laid over; of one that Parse has read
}

// emptyJob is the job of an empty file.
func emptyJob() *Job {
	return &Job{
		Schema:     Schema,
		WorkDir:    ".",
		RunDir:     "runs",
		Code:       snapshot.DefaultConfig(),
		Launch:     launch.DefaultConfig(),
		Requeue:    recovery.DefaultPolicy(),
		MPI:        mpi.DefaultConfig(),
		Train:      trainer.DefaultConfig(),
		Checkpoint: checkpoint.DefaultConfig(),
	}
}

// Builtin reports whether the ranks run the built-in trainer, and not a command of the user's.
func (j *Job) Builtin() bool { return len(j.Launch.Command) == 0 }

// Policy is what follows an attempt that is not done: [requeue], and launch.max_restarts.
func (j *Job) Policy() recovery.Policy {
	p := j.Requeue
	p.MaxRestarts, p.Limit = j.Launch.MaxRestarts, j.timeLimit()
	return p
}

// Nodes is how many nodes the job asks for, at most: slurm.nodes, or 1, and those of further components.
func (j *Job) Nodes() int {
	_, most := j.nodeRange()
	for _, c := range j.Components {
		most += c.nodes()
	}
	return most
}

// LeastNodes is on how many nodes Slurm may start the job at least: the first number of slurm.nodes = "2-4", else Nodes.
func (j *Job) LeastNodes() int {
	least, most := j.nodeRange()
	if least == most {
		return j.Nodes()
	}
	return least
}

func (j *Job) nodeRange() (least, most int) {
	text, _ := j.Slurm.Get("nodes")
	if least, most, ok := nodeRange(text); ok {
		return least, most
	}
	n := max(1, j.option("nodes"))
	return n, n
}

// Links is how many jobs, one after the other, the work is spread over: slurm.chain, or 1.
func (j *Job) Links() int { return max(1, j.Chain) }

// CPUsPerRank is slurm.cpus_per_task, or 0 where the job does not say.
func (j *Job) CPUsPerRank() int { return j.option("cpus-per-task") }

// option is the whole number that an sbatch option was given; 0 where it was not.
func (j *Job) option(name string) int {
	value, _ := j.Slurm.Get(name)
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return n
}

// MaxNproc is the largest number of ranks that any node runs; 0 where only the nodes can tell.
func (j *Job) MaxNproc() int {
	if len(j.Launch.NprocPerNode.Counts) == 0 {
		return 0
	}
	return slices.Max(j.Launch.NprocPerNode.Counts)
}

// timeLimit is slurm.time; 0: none, or not said.
func (j *Job) timeLimit() time.Duration {
	text, _ := j.Slurm.Get("time")
	limit, err := slurm.ParseTime(text)
	if err != nil || limit == slurm.Unlimited {
		return 0
	}
	return limit
}

// OfRun reads the resolved job out of the spec of a run: of a sweep's element, its own.
func OfRun(d *rundir.Dir) (*Job, error) {
	var job Job
	err := json.Unmarshal(d.Spec().Job, &job)
	if err != nil {
		return nil, fmt.Errorf("read the job in %s: %w", d.SpecPath(), err)
	}
	if job.Sweep != nil {
		if err := job.Sweep.check(); err != nil {
			return nil, fmt.Errorf("read the job in %s: %w", d.SpecPath(), err)
		}
	}
	own, err := job.Of(d)
	if err != nil {
		return nil, fmt.Errorf("read the job in %s: %w", d.SpecPath(), err)
	}
	return own, nil
}

// Spec is the run's spec with what the job says put in.
func (j *Job) Spec(spec rundir.Spec) (rundir.Spec, error) {
	resolved, err := json.Marshal(j)
	if err != nil {
		return rundir.Spec{}, fmt.Errorf("write the job as JSON: %w", err)
	}
	spec.Schema, spec.Name, spec.WorkDir, spec.Nodes, spec.Job = 1, j.Name, j.WorkDir, j.Nodes(), resolved
	spec.Defaults, spec.Clusters = j.defaults, j.Clusters()
	return spec, nil
}

// BatchScript is what the job's batch script is rendered from.
func (j *Job) BatchScript(runDir string) slurm.Script {
	parts := j.Parts()
	first := parts[0]
	script := slurm.Script{
		Name: j.Name, RunDir: runDir, WorkDir: j.RanksDir(runDir), Options: j.Slurm,
		Nodes: first.Nodes(), LeastNodes: first.LeastNodes(), MinNodes: j.Launch.MinNodes,
		Mode: j.Launch.Mode, Nproc: first.MaxNproc(), CPUsPerRank: first.CPUsPerRank(),
		Setup:   j.setup(),
		Requeue: len(j.Requeue.On) > 0, Chain: j.Links() > 1, Lead: j.Requeue.Lead, Grace: j.Launch.Grace,
	}
	for _, part := range parts[1:] {
		script.Components = append(script.Components, slurm.Component{
			Options: part.Slurm, Nodes: part.Nodes(), Nproc: part.MaxNproc(), CPUsPerRank: part.CPUsPerRank(),
		})
	}
	return script
}

// MoreTraining are the settings with which the job goes on that has ended by itself, after so many steps and epochs: twice what ended it,
// which may be several at one step. early tells that it ended because its evaluations got no better.
func (j *Job) MoreTraining(steps int64, epochs int, early bool) []string {
	t := &j.Train
	var sets []string
	if early {
		sets = append(sets, "train.evaluate.patience="+strconv.Itoa(2*t.Evaluate.Patience))
	}
	if t.MaxSteps > 0 && steps >= int64(t.MaxSteps) {
		sets = append(sets, "train.max_steps="+strconv.FormatInt(2*steps, 10))
	}
	if len(sets) == 0 || epochs >= t.Epochs {
		sets = append(sets, "train.epochs="+strconv.Itoa(2*max(t.Epochs, epochs)))
	}
	return sets
}

// Summary says in one line what the job is.
func (j *Job) Summary() string {
	what := "trains " + j.Train.Model.Kind + " on " + j.Train.Data.Kind
	if !j.Builtin() {
		what = "runs " + redact.Text(slurm.ShellJoin(j.Launch.Command))
	}
	var places []string
	for _, part := range j.Parts() {
		nodes := words.Plural(part.Nodes(), "node")
		if least := part.LeastNodes(); least < part.Nodes() {
			nodes = fmt.Sprintf("%d to %s", least, nodes)
		}
		places = append(places, nodes+" x "+part.ranksPerNode())
	}
	text := fmt.Sprintf("%s %s on %s", j.Name, what, strings.Join(places, " + "))
	if j.Sweep != nil {
		text += fmt.Sprintf(", a sweep of %s over %s", words.Plural(j.Sweep.Len(), "element"), strings.Join(j.Sweep.Columns(), ", "))
	}
	return text
}

func (j *Job) ranksPerNode() string {
	n := j.Launch.NprocPerNode
	switch {
	case n.Word != "":
		return "one rank per " + n.Word
	case len(n.Counts) == 1:
		return words.Plural(n.Counts[0], "rank")
	}
	counts := make([]string, len(n.Counts))
	for i, c := range n.Counts {
		counts[i] = strconv.Itoa(c)
	}
	return strings.Join(counts, ",") + " ranks"
}
