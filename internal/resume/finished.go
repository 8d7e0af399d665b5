package resume

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// moreToDo reports whether sets may give a finished run something to do: that is, whether they change what is trained or run, and not only
// where.
func moreToDo(run *rundir.Dir, sets []string) bool {
	job, err := jobfile.OfRun(run)
	return err == nil && (asksAnew(sets) || slices.ContainsFunc(sets, func(set string) bool {
		table, _, _ := strings.Cut(jobfile.SetKey(set), ".")
		if job.Builtin() {
			return table == "train"
		}
		return !slices.Contains([]string{"slurm", "setup", "requeue", "checkpoint", "sweep"}, table)
	}))
}

// describeFinished says that a run has nothing left to do, and how to continue it all the same. words, the arguments after --, are an
// error. path is the run as a user would type it.
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
		// The metrics do not say whether the last epoch was completed.
		early, epochs := job.Train.Evaluate.Patience > 0 && m.Step < m.Steps, 0
		if m.Epoch != nil {
			epochs = *m.Epoch
		}
		if !early {
			epochs++
		}
		more := job.MoreTraining(m.Step, epochs, early)
		hint = fmt.Sprintf("; to train further: ddpbatch resume %s --set %s", slurm.ShellQuote(path), strings.Join(more, " --set "))
	}
	if len(words) > 0 {
		return "", usage.Errorf("%s is finished, so %q has no effect%s", job.Name, redact.Text(words[0]), hint)
	}
	if len(sets) > 0 {
		hint = fmt.Sprintf(", and --set %s gives it nothing more to do%s", redact.Text(sets[0]), hint)
	}
	return job.Name + " is finished" + hint, nil
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
