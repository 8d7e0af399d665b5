package attempt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/recovery"
)

const (
	onEndLimit  = time.Minute // for launch.on_end
	onEndLeave  = time.Second // after it was killed, for its child processes to close its output
	maxVariable = 4 << 10     // bytes of a text in its environment
)

// withheld are variables that commands other than ranks do not get: the run's secret, and a text that may contain a secret of the user.
var withheld = []string{"DDPBATCH_SECRET", "DDPBATCH_SETUP_FAILURE"}

// IsLast reports whether nothing follows by itself after an attempt's end: no requeue, and no next link. acted is the error of Act.
func (a *Attempt) IsLast(w Ending, acted error) bool {
	hasNext := a.Link.Number > 0 && !a.Link.Last()
	switch {
	case errors.Is(acted, rundir.ErrSuperseded):
		return false // another job has taken over the run, and runs the command at its end
	case errors.Is(acted, errNotRequeued):
		return !hasNext
	case acted != nil:
		return true
	case w.Decision.Action == recovery.Requeue:
		return false
	case w.Decision.Action == recovery.EndLink:
		return !hasNext
	}
	return true
}

// OnEnd runs the job's launch.on_end, if it has one. The caller calls it if nothing follows the attempt that ended as w says; code is the
// batch script's exit code. A failure of the command is only logged, as the run has ended by then.
func (a *Attempt) OnEnd(ctx context.Context, w Ending, code int) {
	job, err := jobfile.OfRun(a.Run)
	if err != nil || len(job.Launch.OnEnd) == 0 {
		return
	}
	limit := a.onEndLimit()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := a.runOnEnd(ctx, job, w, code); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it had not ended after %v", limit.Round(time.Millisecond))
		}
		a.Env.Log.Warn("launch.on_end failed", "command", job.Launch.OnEnd[0], "error", err)
	}
}

// onEndLimit returns how long launch.on_end may take: after TERM, KILL comes within KillWait, of which the workers and the questions to
// Slurm have used their part.
func (a *Attempt) onEndLimit() time.Duration {
	limit := onEndLimit
	if slices.Contains(a.Signals, "TERM") {
		return min(limit, afterWorkers(killWaitOf(a.Env.Lookup))/3)
	}
	if left := jobenv.SlurmDeadline(a.Env.Lookup).Sub(a.Env.Now()); left > 0 {
		limit = min(limit, left)
	}
	return limit
}

func (a *Attempt) runOnEnd(ctx context.Context, job *jobfile.Job, w Ending, code int) error {
	verdict, err := json.Marshal(w.Verdict)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, job.Launch.OnEnd[0], job.Launch.OnEnd[1:]...)
	cmd.Env = append(slices.DeleteFunc(slices.Clone(a.Env.Environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(withheld, name)
	}), a.onEndEnviron(job, w, code)...)
	if dir := job.RanksDir(a.Run.Whole().Path()); vfs.IsDir(dir) {
		cmd.Dir = dir
	}
	cmd.Stdin = bytes.NewReader(append(verdict, '\n'))
	cmd.Stdout, cmd.Stderr = a.Env.Err, a.Env.Err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = onEndLeave
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // a child process of the command still has its output open, and may go on
		return nil
	}
	return err
}

// onEndEnviron returns the variables that describe the run and its end to the command. Texts are one line each, so that they fit into the
// subject of a mail.
func (a *Attempt) onEndEnviron(job *jobfile.Job, w Ending, code int) []string {
	message := w.Verdict.Message
	if w.Decision.Action == recovery.GiveUp && w.Decision.Why != "" {
		message += "; not started again: " + w.Decision.Why
	}
	message = text.Clean(message)
	if len(message) > maxVariable {
		message = strings.ToValidUTF8(message[:maxVariable], "") + "..."
	}
	return []string{
		"DDPBATCH_RUN_DIR=" + a.Run.Path(),
		"DDPBATCH_JOB_NAME=" + job.Name,
		"DDPBATCH_JOB_ID=" + a.JobID,
		"DDPBATCH_CAUSE=" + string(recovery.CauseOf(w.Verdict)),
		"DDPBATCH_EXIT=" + strconv.Itoa(code),
		"DDPBATCH_MESSAGE=" + message,
		"DDPBATCH_ATTEMPT=" + strconv.Itoa(max(a.Number, w.Verdict.Attempt)),
		"DDPBATCH_STEP=" + strconv.FormatInt(w.Verdict.Step, 10),
	}
}
