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

// moreToDo reports whether sets may give a finished run something to do: they change what is trained or run, not only where.
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
		// That all of the last epoch is trained the metrics do not tell.
		early, epochs := job.Train.Evaluate.Patience > 0 && m.Step < m.Steps, 0
		if m.Epoch != nil {
			epochs = *m.Epoch
		}
		if !early {
			epochs++
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
