package jobfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	words "ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
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

// ExportPath is where the job wants its final model; empty: nowhere.
func (j *Job) ExportPath() string {
	if j.Train.Export == "" {
		return ""
	}
	return j.resolve(j.Train.Export)
}

// resolve returns a path of the job as the trainer opens it (trainer.Config.Files). An absolute path stays as it is written: behind a link,
// only the file system knows where .. leads.
func (j *Job) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(j.WorkDir, path)
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

// CheckFiles names the first file that the built-in trainer would look for in vain.
func (j *Job) CheckFiles() error {
	if !j.Builtin() {
		return nil
	}
	for _, f := range j.Train.Files() {
		if _, err := os.Stat(j.resolve(f.Path)); err != nil {
			return &usage.Error{
				Message: fmt.Sprintf("train.%s: %v", f.Key, err),
				Hint:    "correct the path in the job file (relative paths start at workdir, " + j.WorkDir + ")",
			}
		}
	}
	file := j.ExportPath()
	if folder, _ := filepath.Split(file); file != "" && !vfs.IsDir(folder) { // which Dir would change, behind a link
		return &usage.Error{
			Message: fmt.Sprintf("train.export: the folder of %s is not there", file),
			Hint:    "make it first, or name another",
		}
	}
	return nil
}
