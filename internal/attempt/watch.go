package attempt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
)

const (
	watchEvery     = time.Second      // between checks whether srun still runs
	watchFiles     = 5 * time.Second  // between checks of the run directory
	watchLeave     = time.Minute      // for srun to end after the run's final verdict: lost agents that still run need some 30 s
	watchLeaveSoon = 3 * time.Second  // the same if Slurm ends the job: KILL is near, and a requeue must come before it
	watchInsist    = 15 * time.Second // between TERM and KILL for srun
)

// stepWatch ends srun if it outlives the run. The step of a run that goes on with fewer nodes outlives lost agents. An agent that was lost
// only because it did not answer, as it was stopped or its file system hangs, may live on, and srun would wait for it forever.
//
// A final verdict may be withdrawn: an agent that is cut off may write one, and agent 0, which has lost that agent, then starts the workers
// again.
type stepWatch struct {
	a        *Attempt
	srun     func(syscall.Signal) error // sends srun a signal; os.ErrProcessDone means that it has ended
	leave    time.Duration
	looked   time.Time // when the run directory was last checked
	lastWord time.Time // when the final verdict that still holds was first seen; zero: there is none
	forced   time.Time // when srun got TERM; zero: it has not
}

// newStepWatch returns a stepWatch for the process pid, the srun of the attempt in DDPBATCH_ATTEMPT.
func newStepWatch(e Env, run *rundir.Dir, pid int) (*stepWatch, error) {
	number, err := strconv.Atoi(e.get("DDPBATCH_ATTEMPT"))
	if err != nil {
		return nil, fmt.Errorf("read DDPBATCH_ATTEMPT: %w", err)
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return nil, err
	}
	process, err := os.FindProcess(pid) // refers to this process even if its id is reused, if the kernel has pidfd_open(2)
	if err != nil {
		return nil, err
	}
	return &stepWatch{
		a:    &Attempt{Env: e, Run: run, Number: number, JobID: e.jobID()},
		srun: func(sig syscall.Signal) error { return process.Signal(sig) },
		// Agent 0 withdraws the verdict of an agent that is cut off once the workers of all other agents are gone, which takes up to two
		// grace times: its own workers', and then the others'.
		leave: watchLeave + 2*job.Launch.Grace,
	}, nil
}

// Watch ends the srun with the process id pid if it outlives the run, and returns when it has ended. ctx ends when Slurm ends the job.
func Watch(ctx context.Context, e Env, run *rundir.Dir, pid int) error {
	w, err := newStepWatch(e, run, pid)
	if err != nil {
		return err
	}
	return w.watch(ctx)
}

// watch returns when srun has ended, or when another script has taken over the run. When ctx ends, watch goes on with shorter times, as
// nobody else ends srun.
func (w *stepWatch) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	ending, every := ctx.Done(), watchFiles
	for {
		if errors.Is(w.srun(0), os.ErrProcessDone) {
			return nil
		}
		due := w.due() != 0
		if due || time.Since(w.looked) >= every {
			switch err := w.look(); {
			case errors.Is(err, rundir.ErrSuperseded):
				return nil // another script has taken over the run
			case err == nil && due:
				w.end()
			}
		}
		select {
		case <-tick.C:
		case <-ending:
			w.leave, every, ending = watchLeaveSoon, watchEvery, nil
		}
	}
}

// look checks whether the run is over, or is no longer over.
func (w *stepWatch) look() error {
	w.looked = time.Now()
	over, err := w.isOver()
	switch {
	case err != nil: // the last result holds, but the caller sends no signal
	case !over:
		w.lastWord, w.forced = time.Time{}, time.Time{}
	case w.lastWord.IsZero():
		w.lastWord = w.looked
	}
	return err
}

// isOver reports whether the newest attempt's verdict is the run's final one in this job: agent 0, or the agent in its place, has written
// it into the ledger, too, which it does when all workers are gone, and the agents do not start them again.
func (w *stepWatch) isOver() (bool, error) {
	if err := w.a.turnToNewest(); err != nil {
		return false, err
	}
	v, err := w.a.Run.Verdict(w.a.Number)
	if errors.Is(err, fs.ErrNotExist) || err == nil && v.Restart {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	history, err := w.a.Run.Ledger()
	return slices.ContainsFunc(history, func(event rundir.Event) bool {
		return event.Event == rundir.EventEnd && event.Attempt == w.a.Number
	}), err
}

// due returns the signal that srun is to get now if the run is still over, or 0. After TERM srun kills all tasks (Slurm 22.05); if srun is
// killed, Slurm does so.
func (w *stepWatch) due() syscall.Signal {
	switch {
	case w.lastWord.IsZero() || time.Since(w.lastWord) < w.leave:
		return 0
	case w.forced.IsZero():
		return syscall.SIGTERM
	case time.Since(w.forced) >= watchInsist:
		return syscall.SIGKILL
	}
	return 0
}

// end sends srun the signal that is due, which ends srun and the step.
func (w *stepWatch) end() {
	sig := w.due()
	if sig == 0 {
		return
	}
	if sig == syscall.SIGTERM {
		w.forced = time.Now()
		w.a.Env.Log.Warn("the run is over, but lost agents have not ended: telling srun to end its step", "after", w.leave)
	}
	_ = w.srun(sig) // an error means that srun has ended, which the next check finds
}
