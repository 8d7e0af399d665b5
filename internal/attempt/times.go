package attempt

import (
	"context"
	"errors"
	"time"

	"ddpbatch/slurm"
)

// FindDeadline asks Slurm when the job around this process is ended by its limit: no variable tells before Slurm 23.02, and the end may be
// moved. (squeue's %L counts from the limit, in minutes, and misses an end that a preemption or "scontrol update EndTime" has moved.) It
// returns nil outside of a job, and where the user has set a deadline; and a function that gives zero for a job without a limit.
func (e Env) FindDeadline() func(context.Context) (time.Time, error) {
	if e.jobID() == "" || e.get("DDPBATCH_DEADLINE") != "" {
		return nil
	}
	return func(ctx context.Context) (time.Time, error) {
		facts, err := e.ownFacts(ctx)
		if err == nil && facts.End.IsZero() && facts.TimeLimit != "UNLIMITED" {
			err = errors.New("Slurm does not say when the job ends")
		}
		return facts.End, err
	}
}

// IsPreempted asks Slurm whether another job is to get the nodes of the job around this process. It returns nil outside of a job.
func (e Env) IsPreempted() func(context.Context) (bool, error) {
	if e.jobID() == "" {
		return nil
	}
	return func(ctx context.Context) (bool, error) {
		facts, err := e.ownFacts(ctx)
		return !facts.PreemptTime.IsZero(), err
	}
}

// ownFacts asks for the job around this process.
func (e Env) ownFacts(ctx context.Context) (slurm.JobFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, deadlineLimit)
	defer cancel()
	return e.Slurm.Facts(ctx, e.jobID())
}

// deadlineLimit bounds the question.
const deadlineLimit = 3 * time.Second

const (
	killWaitName  = "DDPBATCH_KILL_WAIT"
	usualKillWait = 30 * time.Second // slurm.conf(5), KillWait
	configLimit   = 10 * time.Second // bounds the question, which a busy controller answers late
)

// askConfig asks Slurm for its configuration. No answer: the usual KillWait.
func askConfig(ctx context.Context, e Env) slurm.ClusterConfig {
	ctx, cancel := context.WithTimeout(ctx, configLimit)
	defer cancel()
	config, err := e.Slurm.ClusterConfig(ctx)
	if err != nil {
		return slurm.ClusterConfig{KillWait: usualKillWait}
	}
	config.KillWait = max(time.Second, config.KillWait)
	return config
}

// killWaitOf is what attempt begin has found; the usual time where it is not told.
func killWaitOf(lookup func(string) (string, bool)) time.Duration {
	text, _ := lookup(killWaitName)
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return usualKillWait
	}
	return d
}

// afterWorkers is the part of a KillWait that the workers leave to what comes after them: the agents' last words, srun's end, and `attempt
// end`.
func afterWorkers(killWait time.Duration) time.Duration {
	return min(max(5*time.Second, killWait/3), killWait*2/3)
}

// TermGrace is how long workers may take to leave once the job is told to end, so that there is time to decide what follows; 0
// outside of a batch script, where nobody is known to kill.
func TermGrace(lookup func(string) (string, bool)) time.Duration {
	if text, _ := lookup(killWaitName); text == "" {
		return 0
	}
	killWait := killWaitOf(lookup)
	return killWait - afterWorkers(killWait)
}
