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

// Job is a whole job.toml, checked, with defaults filled in. It is written to spec.json, and reading that gives
// an equal Job; durations are whole nanoseconds there.
type Job struct {
	Schema int    `json:"schema"`
	Name   string `json:"name"`
	// WorkDir is the folder in which ranks run, unless the run has a copy of the code (RanksDir). RunDir is the parent of the run
	// directories. Both are absolute.
	WorkDir string `json:"workdir"`
	RunDir  string `json:"run_dir"`
	// ScriptTemplate is the absolute path of the template to render instead of templates.Batch. Empty: there is none.
	ScriptTemplate string            `json:"script_template,omitempty"`
	Code           snapshot.Config   `json:"code"`
	Slurm          slurm.Options     `json:"slurm"`
	Components     []Component       `json:"components,omitempty"` // further components of a heterogeneous job; empty: it is not one
	Chain          int               `json:"chain,omitempty"`      // slurm.chain; 0: not given
	Setup          slurm.Setup       `json:"setup"`
	Env            map[string]string `json:"env,omitempty"`      // [setup] env: for the workers, any bytes but NUL
	Container      container.Config  `json:"container,omitzero"` // without a runtime: ranks run on the nodes themselves
	Launch         launch.Config     `json:"launch"`
	Requeue        recovery.Policy   `json:"requeue"` // without MaxRestarts: see Policy
	MPI            mpi.Config        `json:"mpi"`
	Train          trainer.Config    `json:"train"`
	Checkpoint     checkpoint.Config `json:"checkpoint"`
	// Sweep says in what the job's elements differ; apart from it, the job is the first element. nil: it is one job.
	Sweep *Sweep `json:"sweep,omitempty"`

	// CodeDir is the folder in the run's copy of the code in which ranks run, relative to the copy; empty: the run has no copy. SelectCode
	// sets it.
	CodeDir string `json:"code_dir,omitempty"`

	defaults []rundir.DefaultsFile // the files of defaults that Parse used
	dir      string                // the job file's folder, while remarks are found
}

// emptyJob returns the job of an empty file.
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

// Builtin reports whether the ranks run the built-in trainer, and not the user's own command.
func (j *Job) Builtin() bool { return len(j.Launch.Command) == 0 }

// Policy returns the policy for attempts that do not complete the run: [requeue], and launch.max_restarts.
func (j *Job) Policy() recovery.Policy {
	p := j.Requeue
	p.MaxRestarts, p.Limit = j.Launch.MaxRestarts, j.timeLimit()
	return p
}

// Nodes returns the largest number of nodes that the job asks for: slurm.nodes, or 1, plus those of further components.
func (j *Job) Nodes() int {
	_, most := j.nodeRange()
	for _, c := range j.Components {
		most += c.nodes()
	}
	return most
}

// LeastNodes returns the smallest number of nodes on which Slurm may start the job: the first number of slurm.nodes = "2-4", or else
// Nodes.
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

// Links returns how many jobs, one after the other, the work is spread over: slurm.chain, or 1.
func (j *Job) Links() int { return max(1, j.Chain) }

// CPUsPerRank returns slurm.cpus_per_task, or 0 if it is not given.
func (j *Job) CPUsPerRank() int { return j.option("cpus-per-task") }

// option returns the whole number that is the value of an option of sbatch, or 0 if the option is not given.
func (j *Job) option(name string) int {
	value, _ := j.Slurm.Get(name)
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return n
}

// MaxNproc returns the largest number of ranks of a node, or 0 if it is known only on the nodes.
func (j *Job) MaxNproc() int {
	if len(j.Launch.NprocPerNode.Counts) == 0 {
		return 0
	}
	return slices.Max(j.Launch.NprocPerNode.Counts)
}

// timeLimit returns slurm.time, or 0 if it is unlimited or not given.
func (j *Job) timeLimit() time.Duration {
	text, _ := j.Slurm.Get("time")
	limit, err := slurm.ParseTime(text)
	if err != nil || limit == slurm.Unlimited {
		return 0
	}
	return limit
}

// OfRun reads the job from the spec of a run. For an element of a sweep it returns the element's own job.
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

// Spec returns the run's spec with the job's values filled in.
func (j *Job) Spec(spec rundir.Spec) (rundir.Spec, error) {
	resolved, err := json.Marshal(j)
	if err != nil {
		return rundir.Spec{}, fmt.Errorf("write the job as JSON: %w", err)
	}
	spec.Schema, spec.Name, spec.WorkDir, spec.Nodes, spec.Job = 1, j.Name, j.WorkDir, j.Nodes(), resolved
	spec.Defaults, spec.Clusters = j.defaults, j.Clusters()
	return spec, nil
}

// BatchScript returns the data from which the job's batch script is rendered.
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

// MoreTraining returns the overrides with which a job that ended by itself, after the given steps and epochs, trains on. They double each
// limit that ended it; there may be several. early says that it ended because its evaluations did not improve.
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

// Summary describes the job in one line.
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
	} else if array, err := j.Array(); array != nil && err == nil { // otherwise only Slurm can count its elements
		text += ", an array of " + words.Plural(len(array.Indices), "element")
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
