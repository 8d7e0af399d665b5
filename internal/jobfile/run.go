package jobfile

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// OfRun reads the resolved job out of a run's spec.
func OfRun(d *rundir.Dir) (*Job, error) {
	var job Job
	if err := json.Unmarshal(d.Spec().Job, &job); err != nil {
		return nil, fmt.Errorf("read the job in %s: %w", d.SpecPath(), err)
	}
	return &job, nil
}

// BatchScript is what the job's batch script is rendered from.
func (j *Job) BatchScript(runDir string) slurm.Script {
	return slurm.Script{
		Name: j.Name, RunDir: runDir, WorkDir: j.WorkDir, Options: j.Slurm,
		Nodes: j.Nodes(), MinNodes: j.Launch.MinNodes, Mode: j.Launch.Mode, Nproc: j.MaxNproc(), CPUsPerRank: j.CPUsPerRank(),
		Setup:   j.Setup,
		Requeue: len(j.Requeue.On) > 0, Lead: j.Requeue.Lead, Grace: j.Launch.Grace,
	}
}

// SetKey is the key that a word of --set is about.
func SetKey(set string) string {
	key, _, _ := strings.Cut(set, "=")
	return strings.TrimSpace(key)
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
	return fmt.Sprintf("%s %s on %s x %s", j.Name, what,
		words.Plural(j.Nodes(), "node"), j.ranksPerNode())
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

// Spec is the run's spec with what the job says put in.
func (j *Job) Spec(spec rundir.Spec) (rundir.Spec, error) {
	resolved, err := json.Marshal(j)
	if err != nil {
		return rundir.Spec{}, fmt.Errorf("write the job as JSON: %w", err)
	}
	spec.Schema, spec.Name, spec.WorkDir, spec.Nodes, spec.Job = 1, j.Name, j.WorkDir, j.Nodes(), resolved
	return spec, nil
}
