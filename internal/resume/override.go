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
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// override returns the run's job with sets applied after kept, the overrides that remain from its start. It writes these and simulate's
// flags to the spec, unless fits returns an error about the changed job of the whole run. It also returns warnings about keys of the job
// file that have no effect, and those that remarks finds. remarks, which may be nil, looks at the files of this machine, so it is not
// called if the ranks run in a copy of the code.
func override(
	ctx context.Context, run *rundir.Dir, kept, sets, pretend []string, remarks func(*jobfile.Job) []jobfile.Remark,
	fits func(*jobfile.Job, rundir.Overridden) error,
) (*jobfile.Job, []jobfile.Fault, error) {
	spec := run.Spec()
	if len(sets) == 0 && slices.Equal(kept, spec.Sets) && slices.Equal(pretend, spec.Pretend) {
		job, err := jobfile.OfRun(run)
		if err == nil {
			err = job.CheckCode(run.Whole().Path())
		}
		return job, nil, err
	}
	job, changed, warnings, err := changedBy(ctx, run, kept, sets, pretend, remarks)
	if err != nil {
		return nil, warnings, err
	}
	if err := fits(job, changed); err != nil {
		return nil, warnings, err
	}
	if err := run.WriteSpec(spec.Override(changed)); err != nil {
		return nil, warnings, err
	}
	job, err = job.Of(run)
	return job, warnings, err
}

// changedBy returns the run's job with sets applied after kept, and what of the spec changes. It changes nothing.
func changedBy(
	ctx context.Context, run *rundir.Dir, kept, sets, pretend []string, remarks func(*jobfile.Job) []jobfile.Remark,
) (*jobfile.Job, rundir.Overridden, []jobfile.Fault, error) {
	spec, none := run.Spec(), rundir.Overridden{}
	anew, elements, err := anewFrom(run, sets)
	if err != nil {
		return nil, none, nil, err
	}
	more, err := moreFrom(run, sets)
	if err != nil {
		return nil, none, nil, err
	}
	if slices.ContainsFunc(sets, func(set string) bool { return jobfile.SetKey(set) == "script_template" }) {
		return nil, none, nil, usage.Errorf("script_template cannot be changed: a run keeps the script template that it was submitted with")
	}
	defaults, err := jobfile.RecordedDefaults(spec.Defaults)
	if err != nil {
		return nil, none, nil, fmt.Errorf("read the defaults that the run was submitted with: %w", err)
	}
	written, err := jobfile.ReadText(ctx, run.JobFilePath())
	if err != nil {
		return nil, none, nil, fmt.Errorf("read the run's job file: %w", err)
	}
	before, err := jobfile.OfRun(run)
	if err != nil {
		return nil, none, nil, err
	}
	all := slices.Concat(kept, sets)
	find := []func(*jobfile.Job) []jobfile.Remark{(*jobfile.Job).BlankRemarks}
	if remarks != nil && before.CodeDir == "" {
		find = append(find, remarks)
	}
	job, warnings, err := defaults.ParseWith(run.JobFilePath(), filepath.Dir(spec.Source), written, all, find...)
	if err == nil {
		err = job.KeepCode(before, sets)
	}
	if err == nil {
		err = job.CheckCode(run.Whole().Path())
	}
	if err != nil {
		return nil, none, warnings, err
	}
	fresh, err := job.Spec(spec)
	if err != nil {
		return nil, none, warnings, err
	}
	changed := rundir.Overridden{
		Sets: all, Anew: anew, AnewElements: elements, MoreElements: more,
		Pretend: pretend, Clusters: fresh.Clusters, WorkDir: fresh.WorkDir, Nodes: fresh.Nodes, Job: fresh.Job,
	}
	if index, ok := run.Index(); ok {
		changed.Element = &index
	}
	return job, changed, warnings, nil
}

// checkSwept rejects changes to the elements of a sweep, which have begun under their numbers and are resumed under them.
func checkSwept(sets []string) error {
	for _, set := range sets {
		if key := jobfile.SetKey(set); key == "sweep" || strings.HasPrefix(key, "sweep.") && key != "sweep.parallel" {
			return &usage.Error{
				Message: "--set " + key + ": the elements of a submitted sweep cannot be changed", Hint: "submit another sweep",
			}
		}
	}
	return nil
}

// asksAnew reports whether sets change checkpoint.resume.
func asksAnew(sets []string) bool {
	return slices.ContainsFunc(sets, func(set string) bool {
		key := jobfile.SetKey(set)
		return key == "checkpoint.resume" || key == "checkpoint"
	})
}

// anewFrom returns the attempt from which on the run ignores earlier checkpoints if checkpoint.resume is "never", and the same for each
// element of an array. That is the next attempt if sets request it now, and otherwise the earlier value. So each request holds once: for an
// array once for each element, since each counts its own attempts; and if run is one element, only for that.
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

// moreFrom returns, for each element of an array, the first attempt that runs with sets that give even finished elements something to do.
// It is recorded because the job may end, or be canceled, before all elements have begun.
func moreFrom(run *rundir.Dir, sets []string) (map[int]int, error) {
	more := maps.Clone(run.Spec().MoreElements)
	if _, isElement := run.Index(); isElement || !moreToDo(run, sets) {
		return more, nil
	}
	elements, err := run.Elements()
	for _, element := range elements {
		newest, err := element.NewestAttempt()
		if err != nil {
			return nil, err
		}
		if more == nil {
			more = map[int]int{}
		}
		index, _ := element.Index()
		more[index] = newest + 1
	}
	return more, err
}

// checkFits compares a job of the built-in trainer with the newest checkpoint of a run, and of every element of an array: all elements
// have the settings, also if only one of them is resumed. Checkpoints that cannot be read here, or are on a node's own disk, are compared
// on the nodes.
func checkFits(ctx context.Context, run *rundir.Dir, job *jobfile.Job, changed rundir.Overridden, log *slog.Logger) error {
	if !job.Builtin() {
		return nil
	}
	whole := run.Whole()
	elements, err := whole.Elements()
	if err != nil {
		return err
	}
	var first error
	unfit, compared := 0, 0
	for _, d := range append(elements, whole) {
		own, err := job.Of(d)
		if err != nil {
			return err
		}
		newest, err := resumedFrom(ctx, d, own, changed, log)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || newest == nil {
			continue
		}
		compared++
		err = trainer.Fits(own.Train, newest)
		newest.Close() // its information suffices
		if !errors.Is(err, trainer.ErrMismatch) {
			continue
		}
		if unfit++; first == nil {
			first = fmt.Errorf("resume from %s: %w", newest.Info().Path, err)
			if index, ok := d.Index(); ok {
				first = fmt.Errorf("element %d: %w", index, first)
			}
		}
	}
	if first != nil && len(elements) > 0 {
		return fmt.Errorf("the new settings apply to all elements, and do not fit the newest checkpoint of %d of %s; %w; "+
			"submit another job for other settings", unfit, text.Plural(compared, "element"), first)
	}
	return first
}

// resumedFrom returns the checkpoint from which the next attempt of d, a run or an element, would resume with the changed job own. It
// returns nil if that attempt begins anew.
func resumedFrom(
	ctx context.Context, d *rundir.Dir, own *jobfile.Job, changed rundir.Overridden, log *slog.Logger,
) (*checkpoint.Checkpoint, error) {
	dir, err := checkpoint.Open(d.CheckpointsPath(), checkpoint.Options{Run: d.Spec().Run, Log: log})
	if err != nil {
		return nil, err
	}
	if own.Checkpoint.Resume != "auto" {
		anew := changed.Anew
		if index, ok := d.Index(); ok {
			anew = changed.AnewElements[index]
		}
		if begun, err := dir.FirstBegun(max(1, anew)); begun == 0 || err != nil {
			return nil, err
		}
	}
	return dir.FindLatest(ctx)
}

// checkAnew refuses to run only some elements of an array with a new checkpoint.resume: the others would ignore their checkpoints whenever
// they are run next. path is the run as a user would type it.
func checkAnew(path string, sets, words []string) error {
	if !asksAnew(sets) || !slices.ContainsFunc(words, choosesElements) {
		return nil
	}
	return &usage.Error{
		Message: "--set checkpoint.resume applies to every element of the array, but --array runs only some of them now",
		Hint:    "for one element: ddpbatch resume " + slurm.ShellQuote(path+"/tasks/INDEX") + " --set checkpoint.resume=never",
	}
}
