package attempt

import (
	"context"
	"errors"
	"time"

	"ddpbatch/slurm"
)

// FindDeadline returns a function that asks Slurm when the time limit ends the job around this process: before Slurm 23.02 no variable says
// so, and the end may be moved. (squeue's %L is computed from the limit, in minutes, and does not show an end that a preemption or
// "scontrol update EndTime" has moved.) The function returns zero for a job without a limit. FindDeadline returns nil outside a job, and if
// the user has set a deadline.
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

// IsPreempted returns a function that asks Slurm whether the job around this process is being preempted. It returns nil outside a job.
func (e Env) IsPreempted() func(context.Context) (bool, error) {
	if e.jobID() == "" {
		return nil
	}
	return func(ctx context.Context) (bool, error) {
		facts, err := e.ownFacts(ctx)
		return !facts.PreemptTime.IsZero(), err
	}
}

// ownFacts asks Slurm about the job around this process.
func (e Env) ownFacts(ctx context.Context) (slurm.JobFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, deadlineLimit)
	defer cancel()
	return e.Slurm.Facts(ctx, e.jobID())
}

// deadlineLimit bounds the time of ownFacts.
const deadlineLimit = 3 * time.Second

const (
	killWaitName  = "DDPBATCH_KILL_WAIT"
	usualKillWait = 30 * time.Second // slurm.conf(5), KillWait
	configLimit   = 10 * time.Second // bounds the wait for Slurm's configuration, as a busy controller answers late
)

// askConfig asks Slurm for its configuration. Without an answer it returns the usual KillWait.
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

// killWaitOf returns the KillWait that `attempt begin` has found, or the usual one if the variable is not set.
func killWaitOf(lookup func(string) (string, bool)) time.Duration {
	text, _ := lookup(killWaitName)
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return usualKillWait
	}
	return d
}

// afterWorkers returns the part of a KillWait that is kept for what comes after the workers' end: the agents' end, srun's end, and `attempt
// end`.
func afterWorkers(killWait time.Duration) time.Duration {
	return min(max(5*time.Second, killWait/3), killWait*2/3)
}

// TermGrace returns how long workers may take to end once the job is told to end, so that there is time left to decide what follows. It is
// 0 outside a batch script, where no KILL is expected.
func TermGrace(lookup func(string) (string, bool)) time.Duration {
	if text, _ := lookup(killWaitName); text == "" {
		return 0
	}
	killWait := killWaitOf(lookup)
	return killWait - afterWorkers(killWait)
}
