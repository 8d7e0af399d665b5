package main

import (
	"context"
	"time"
)

const (
	killWaitName  = "DDPBATCH_KILL_WAIT"
	usualKillWait = 30 * time.Second // slurm.conf(5), KillWait
	killWaitLimit = 10 * time.Second // bounds the question, which a busy controller answers late
)

// askKillWait asks Slurm how long it waits between TERM and KILL. No answer: the usual time.
func askKillWait(ctx context.Context, e *env) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, killWaitLimit)
	defer cancel()
	client, _ := newSlurmClient(e)
	d, err := client.KillWait(ctx)
	if err != nil {
		return usualKillWait
	}
	return max(time.Second, d)
}

// killWaitOf is what attempt begin has found; the usual time where it is not told.
func killWaitOf(e *env) time.Duration {
	d, err := time.ParseDuration(e.get(killWaitName))
	if err != nil || d <= 0 {
		return usualKillWait
	}
	return d
}

// lastActs is the part of a KillWait that the workers leave to what comes after them: the agents' last words, srun's end, and `attempt end`.
func lastActs(killWait time.Duration) time.Duration {
	return min(max(5*time.Second, killWait/3), killWait*2/3)
}

// termGrace is how long workers may take to leave once the job is told to end, so that there is time to decide what follows; 0
// outside of a batch script, where nobody is known to kill.
func termGrace(e *env) time.Duration {
	if e.get(killWaitName) == "" {
		return 0
	}
	killWait := killWaitOf(e)
	return killWait - lastActs(killWait)
}
