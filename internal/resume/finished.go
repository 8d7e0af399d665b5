package resume

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// moreToDo reports whether sets may give a finished run something to do: that is, whether they change what is trained or which program
// runs, and not only where or how. An unknown key counts, because the error about it comes later.
func moreToDo(run *rundir.Dir, sets []string) bool {
	job, err := jobfile.OfRun(run)
	if err != nil {
		return false
	}
	return asksAnew(sets) || job.Builtin() && liftsLimit(run, job, sets) || slices.ContainsFunc(sets, func(set string) bool {
		key := jobfile.SetKey(set)
		table, _, _ := strings.Cut(key, ".")
		switch {
		case !jobfile.IsKey(key):
			return true
		case job.Builtin():
			return table == "train" && !isLimit(key)
		}
		return slices.Contains([]string{"launch", "launch.command", "workdir"}, key) || table == "container"
	})
}

// isLimit reports whether a key only says how long the built-in trainer trains.
func isLimit(key string) bool { return key == "train.epochs" || key == "train.max_steps" }

// liftsLimit reports whether sets have a limit of the training with which the run, or an element of its array, may train further than it
// has. job is the run's job without sets.
func liftsLimit(run *rundir.Dir, job *jobfile.Job, sets []string) bool {
	limits := map[string]int{}
	for _, set := range sets {
		key := jobfile.SetKey(set)
		if !isLimit(key) {
			continue
		}
		_, value, _ := strings.Cut(set, "=")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 0, 32)
		if err != nil {
			return true // the error comes later
		}
		limits[key] = int(n)
	}
	if len(limits) == 0 {
		return false
	}
	parts := []*rundir.Dir{run}
	if _, isElement := run.Index(); !isElement {
		elements, err := run.Elements()
		if err != nil {
			return true
		}
		if len(elements) > 0 {
			parts = elements
		}
	}
	return slices.ContainsFunc(parts, func(part *rundir.Dir) bool {
		own, err := job.Of(part)
		if err != nil {
			return true
		}
		m, ok, err := part.LastMetrics()
		if err != nil || !ok || m.Epoch == nil {
			return true
		}
		epochs, most := own.Train.Epochs, own.Train.MaxSteps
		if n, isSet := limits["train.epochs"]; isSet {
			epochs = n
		}
		if n, isSet := limits["train.max_steps"]; isSet {
			most = n
		}
		trained := *m.Epoch
		if allEpochs(m, own) {
			trained++
		}
		return trained < epochs && (most == 0 || m.Step < int64(most))
	})
}

// allEpochs reports whether the metrics m, which have an epoch, are those of a training that completed its last epoch.
func allEpochs(m rundir.Metrics, job *jobfile.Job) bool {
	return m.Step >= m.Steps && (job.Train.MaxSteps == 0 || m.Step < int64(job.Train.MaxSteps))
}

// checkIdle rejects keys of [train] for a run of a command, which does not read them. path is the run as a user would type it.
func checkIdle(run *rundir.Dir, path string, sets []string) error {
	job, err := jobfile.OfRun(run)
	if err != nil || job.Builtin() {
		return err
	}
	for _, set := range sets {
		key := jobfile.SetKey(set)
		if table, rest, _ := strings.Cut(key, "."); table != "train" || rest == "evaluate" || strings.HasPrefix(rest, "evaluate.") {
			continue // "ckpt prune" reads train.evaluate
		}
		return &usage.Error{
			Message: fmt.Sprintf("--set %s has no effect: the run is of a command, and [train] is for the built-in trainer",
				redact.Text(key)),
			Hint: "give the program other arguments: " + otherArguments(job, path),
		}
	}
	return nil
}

// otherArguments returns the resume that runs the job's command again, for a user to edit.
func otherArguments(job *jobfile.Job, path string) string {
	return "ddpbatch resume " + slurm.ShellQuote(path) + " --set " + slurm.ShellQuote(job.CommandSet())
}

// describeFinished says that a run has nothing left to do, and how to continue it all the same. words, the arguments after --, are an
// error. path is the run as a user would type it.
func describeFinished(run *rundir.Dir, path string, sets, words []string) (string, error) {
	job, err := jobfile.OfRun(run)
	if err != nil {
		return "", err
	}
	hint := "; to run it again with other arguments: " + otherArguments(job, path)
	if job.Builtin() {
		m, err := trainedSoFar(run)
		if err != nil {
			return "", err
		}
		// The metrics do not say whether the last epoch was completed.
		early, epochs := job.Train.Evaluate.Patience > 0 && m.Step < m.Steps, 0
		if m.Epoch != nil {
			epochs = *m.Epoch
		}
		if !early {
			epochs++
		}
		more := job.MoreTraining(m.Step, epochs, early)
		behind, differ, err := fewerEpochs(run, job)
		if err != nil {
			return "", err
		}
		if behind > 0 {
			more = []string{fmt.Sprintf("train.epochs=%d", behind)}
		}
		hint = fmt.Sprintf("%s; to train further: ddpbatch resume %s --set %s", differ, slurm.ShellQuote(path),
			strings.Join(more, " --set "))
	}
	if len(words) > 0 {
		what := map[string]string{"slurm": " (words after -- go to sbatch)", "simulate": " (words after -- are flags of simulate)"}
		return "", usage.Errorf("%s is finished, so %q has no effect%s%s", job.Name, redact.Text(words[0]), what[run.Spec().Kind], hint)
	}
	if len(sets) > 0 {
		hint = fmt.Sprintf(", and --set %s gives it nothing more to do%s", redact.Text(sets[0]), hint)
	}
	return job.Name + " is finished" + hint, nil
}

// fewerEpochs returns the epochs of the job that elements of an array have not trained, because a --set was given to another element
// alone. differ says how many elements these are. If there are none, or if run is not an array or an element, it returns 0.
func fewerEpochs(run *rundir.Dir, job *jobfile.Job) (epochs int, differ string, err error) {
	elements := []*rundir.Dir{run}
	_, isElement := run.Index()
	if !isElement {
		if elements, err = run.Elements(); err != nil {
			return 0, "", err
		}
	}
	fewer := 0
	for _, element := range elements {
		own, err := job.Of(element)
		if err != nil {
			return 0, "", err
		}
		m, ok, err := element.LastMetrics()
		if err != nil {
			return 0, "", err
		}
		if ok && m.Epoch != nil && allEpochs(m, own) && *m.Epoch+1 < own.Train.Epochs {
			fewer, epochs = fewer+1, own.Train.Epochs
		}
	}
	switch {
	case fewer == 0:
		return 0, "", nil
	case isElement:
		return epochs, fmt.Sprintf("; it has trained fewer than %d epochs", epochs), nil
	}
	has := "have"
	if fewer == 1 {
		has = "has"
	}
	return epochs, fmt.Sprintf("; %d of %s %s trained fewer than %d epochs", fewer, text.Plural(len(elements), "element"), has, epochs), nil
}

// trainedSoFar returns the newest metrics of a run. For an array these are the metrics of its first element, which stands for all of them.
func trainedSoFar(run *rundir.Dir) (rundir.Metrics, error) {
	m, ok, err := run.LastMetrics()
	if ok || err != nil {
		return m, err
	}
	elements, err := run.Elements()
	if err == nil && len(elements) > 0 {
		m, _, err = elements[0].LastMetrics()
	}
	return m, err
}
