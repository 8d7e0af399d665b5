package attempt

import (
	"context"
	"strconv"
	"time"

	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// latestDeadline is the end of the year 9999: what is beyond are milliseconds, or a slip of the pen.
const latestDeadline = 253402300799

// Deadline is when the job will be killed: DDPBATCH_DEADLINE, in seconds since 1970 or as RFC 3339 has it, or else SLURM_JOB_END_TIME; zero where
// nobody says. Slurm sets its variable from 23.02 on.
func Deadline(lookup func(string) (string, bool)) (time.Time, error) {
	text, _ := lookup("DDPBATCH_DEADLINE")
	if text == "" {
		return slurmDeadline(lookup), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return at, usage.Errorf("DDPBATCH_DEADLINE is %q: write seconds since 1970, or a time such as 2026-01-31T12:00:00Z", text)
		}
		seconds = at.Unix()
	}
	if seconds < 1 || seconds > latestDeadline {
		return time.Time{}, usage.Errorf("DDPBATCH_DEADLINE is %q, which is not between the years 1970 and 9999: it counts seconds, not milliseconds", text)
	}
	return time.Unix(seconds, 0), nil
}

// slurmDeadline is the end of the allocation around this process. A job without a time limit has none.
func slurmDeadline(lookup func(string) (string, bool)) time.Time {
	text, _ := lookup("SLURM_JOB_END_TIME")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 1 || seconds > latestDeadline {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// DeadlineEnviron hands a deadline on to processes that get no more of this one's environment.
func DeadlineEnviron(at time.Time) []string {
	if at.IsZero() {
		return nil
	}
	return []string{"DDPBATCH_DEADLINE=" + strconv.FormatInt(at.Unix(), 10)}
}

// FindDeadline asks squeue when the job around this process is ended by its limit: no variable tells before Slurm 23.02, and a limit may be
// moved. It returns nil outside of a job, and where the user has set a deadline; and a function that gives zero for a job without a limit.
func (e Env) FindDeadline() func(context.Context) (time.Time, error) {
	id := e.jobID()
	if id == "" || e.get("DDPBATCH_DEADLINE") != "" {
		return nil
	}
	return func(ctx context.Context) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, deadlineLimit)
		defer cancel()
		left, err := e.Slurm.TimeLeft(ctx, id)
		if err != nil || left == slurm.Unlimited {
			return time.Time{}, err
		}
		return e.Now().Add(left), nil
	}
}

// deadlineLimit bounds the question.
const deadlineLimit = 3 * time.Second

const (
	killWaitName  = "DDPBATCH_KILL_WAIT"
	usualKillWait = 30 * time.Second // slurm.conf(5), KillWait
	killWaitLimit = 10 * time.Second // bounds the question, which a busy controller answers late
)

// askKillWait asks Slurm how long it waits between TERM and KILL. No answer: the usual time.
func askKillWait(ctx context.Context, e Env) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, killWaitLimit)
	defer cancel()
	d, err := e.Slurm.KillWait(ctx)
	if err != nil {
		return usualKillWait
	}
	return max(time.Second, d)
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

// afterWorkers is the part of a KillWait that the workers leave to what comes after them: the agents' last words, srun's end, and `attempt end`.
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
