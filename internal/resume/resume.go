package resume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// override is the run's job, with sets over what is kept of those that it was started with; the
// spec is rewritten to hold them, and simulate's flags. It also returns what the job file asks for in vain.
func override(ctx context.Context, run *rundir.Dir, kept, sets, pretend []string) (*jobfile.Job, []jobfile.Fault, error) {
	spec := run.Spec()
	if len(sets) == 0 && slices.Equal(kept, spec.Sets) && slices.Equal(pretend, spec.Pretend) {
		job, err := jobfile.OfRun(run)
		return job, nil, err
	}
	anew, elements, err := anewFrom(run, sets)
	if err != nil {
		return nil, nil, err
	}
	text, err := jobfile.ReadText(ctx, run.JobFilePath())
	if err != nil {
		return nil, nil, fmt.Errorf("read the run's job file: %w", err)
	}
	sets = slices.Concat(kept, sets)
	job, warnings, err := jobfile.Parse(run.JobFilePath(), filepath.Dir(spec.Source), text, sets)
	if err != nil {
		return nil, warnings, err
	}
	fresh, err := job.Spec(spec)
	if err != nil {
		return nil, warnings, err
	}
	changed := rundir.Overridden{Sets: sets, Anew: anew, AnewElements: elements, Pretend: pretend, WorkDir: fresh.WorkDir, Nodes: fresh.Nodes, Job: fresh.Job}
	if index, ok := run.Index(); ok {
		changed.Element = &index
	}
	return job, warnings, run.WriteSpec(spec.Override(changed))
}

// asksAnew tells whether sets have a word about checkpoint.resume.
func asksAnew(sets []string) bool {
	return slices.ContainsFunc(sets, func(set string) bool {
		key := jobfile.SetKey(set)
		return key == "checkpoint.resume" || key == "checkpoint"
	})
}

// anewFrom is the attempt from which on the run begins anew where checkpoint.resume says "never", and that of each element of an array: the next one,
// where that is asked for now, or else what it was. So it holds once each time that it is asked for: of an array once for each element, as
// they count their attempts themselves; and where run is one element, for that alone.
func anewFrom(run *rundir.Dir, sets []string) (anew int, elements map[int]int, err error) {
	anew, elements = run.Spec().Anew, maps.Clone(run.Spec().AnewElements)
	if !asksAnew(sets) {
		return anew, elements, nil
	}
	asked := []*rundir.Dir{run}
	if _, ok := run.Index(); !ok {
		newest, err := run.NewestAttempt()
		if err != nil {
			return 0, nil, err
		}
		anew = newest + 1
		if asked, err = run.Elements(); err != nil {
			return 0, nil, err
		}
	}
	if elements == nil {
		elements = map[int]int{}
	}
	for _, element := range asked {
		newest, err := element.NewestAttempt()
		if err != nil {
			return 0, nil, err
		}
		index, _ := element.Index()
		elements[index] = newest + 1
	}
	return anew, elements, nil
}

// checkFits compares a job of the built-in trainer with the newest checkpoint of a run, and of each element of an array. What cannot be
// read here, or is on a node's own disk, the nodes compare.
func checkFits(ctx context.Context, run *rundir.Dir, job *jobfile.Job, log *slog.Logger) error {
	if !job.Builtin() || job.Checkpoint.Resume != "auto" {
		return nil
	}
	elements, err := run.Elements()
	if err != nil {
		return err
	}
	for _, run := range append(elements, run) {
		dir, err := checkpoint.Open(run.CheckpointsPath(), checkpoint.Options{Log: log})
		if err != nil {
			return err
		}
		newest, err := dir.FindLatest(ctx)
		if err != nil {
			continue
		}
		err = trainer.Fits(job.Train, newest)
		newest.Close() // it was only read
		if errors.Is(err, trainer.ErrMismatch) {
			return fmt.Errorf("resume from %s: %w", newest.Info().Path, err)
		}
	}
	return ctx.Err()
}

// checkAnew refuses to begin an array anew of which only some elements are run now: the others would do so whenever they are run again. path is
// the run as a person would type it.
func checkAnew(path string, sets, words []string) error {
	narrows := func(word string) bool {
		return word == "--array" || strings.HasPrefix(word, "--array=") || strings.HasPrefix(word, "-a")
	}
	if !asksAnew(sets) || !slices.ContainsFunc(words, narrows) {
		return nil
	}
	return &usage.Error{
		Message: "--set checkpoint.resume holds for every element of the array, and --array runs only some of them now",
		Hint:    "for one element: ddpbatch resume " + slurm.ShellQuote(path+"/tasks/INDEX") + " --set checkpoint.resume=never",
	}
}

// moreToDo tells whether sets may give a finished run something to do: what is trained, or run, and not on what.
func moreToDo(run *rundir.Dir, sets []string) bool {
	job, err := jobfile.OfRun(run)
	return err == nil && (asksAnew(sets) || slices.ContainsFunc(sets, func(set string) bool {
		table, _, _ := strings.Cut(jobfile.SetKey(set), ".")
		if job.Builtin() {
			return table == "train"
		}
		return !slices.Contains([]string{"slurm", "setup", "requeue", "checkpoint"}, table)
	}))
}

// describeFinished tells what to do with a run that has nothing left to do. Words behind -- would be for one that goes on. path
// is the run as a person would type it.
func describeFinished(run *rundir.Dir, path string, sets, words []string) (string, error) {
	job, err := jobfile.OfRun(run)
	if err != nil {
		return "", err
	}
	hint := ""
	if job.Builtin() {
		m, err := trainedSoFar(run)
		if err != nil {
			return "", err
		}
		early, epochs := job.Train.Evaluate.Patience > 0 && m.Step < m.Steps, m.Epoch+1 // that all of the last one is trained the metrics do not tell
		if early {
			epochs = m.Epoch
		}
		more := job.MoreTraining(m.Step, epochs, early)
		hint = fmt.Sprintf("; for more of it: ddpbatch resume %s --set %s", slurm.ShellQuote(path), strings.Join(more, " --set "))
	}
	if len(words) > 0 {
		return "", usage.Errorf("%s is finished, so that nothing is run with %q%s", job.Name, redact.Text(words[0]), hint)
	}
	if len(sets) > 0 {
		hint = fmt.Sprintf(", and --set %s gives it nothing to do%s", redact.Text(sets[0]), hint)
	}
	return job.Name + " is finished" + hint, nil
}

// trainedSoFar are the newest metrics of a run; of an array, those of its first element, which stands for all of them.
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
