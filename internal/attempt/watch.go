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
	watchEvery     = time.Second      // between looks whether srun is there
	watchFiles     = 5 * time.Second  // between looks into the run directory
	watchLeave     = time.Minute      // from the run's last word on, for srun to end: agents that were lost, and live, need some 30 s
	watchLeaveSoon = 3 * time.Second  // the same where Slurm ends the job: KILL is near, and a requeue has to come before it
	watchInsist    = 15 * time.Second // between TERM and KILL for srun
)

// stepWatch ends srun where it outlives the run. The step of a run that goes on with fewer nodes outlives agents that are lost. One that
// was lost by its silence alone, as it was stopped or its file system hangs, may live on, and srun would wait for it for ever.
//
// The last word may be taken back: an agent that is cut off has one, and agent 0, which has lost it, then starts the workers again.
type stepWatch struct {
	a        *Attempt
	srun     func(syscall.Signal) error // signals it; os.ErrProcessDone: it has ended
	leave    time.Duration
	looked   time.Time // into the run directory
	lastWord time.Time // when the last word that still holds was seen; zero: there is none
	forced   time.Time // when srun got TERM; zero: it has not
}

// newStepWatch watches the process pid, the srun of the attempt that DDPBATCH_ATTEMPT tells.
func newStepWatch(e Env, run *rundir.Dir, pid int) (*stepWatch, error) {
	number, err := strconv.Atoi(e.get("DDPBATCH_ATTEMPT"))
	if err != nil {
		return nil, fmt.Errorf("read DDPBATCH_ATTEMPT: %w", err)
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return nil, err
	}
	process, err := os.FindProcess(pid) // which holds on to this very process, where the kernel can (pidfd_open(2))
	if err != nil {
		return nil, err
	}
	return &stepWatch{
		a:    &Attempt{Env: e, Run: run, Number: number, JobID: e.jobID()},
		srun: func(sig syscall.Signal) error { return process.Signal(sig) },
		// Agent 0 takes back the word of an agent that is cut off once the workers of all others are gone: its own, and theirs after them.
		leave: watchLeave + 2*job.Launch.Grace,
	}, nil
}

// Watch returns when the srun of the newest attempt has ended. It never fails the job. ctx ends when Slurm ends the job.
func Watch(ctx context.Context, e Env, run *rundir.Dir, pid int) error {
	w, err := newStepWatch(e, run, pid)
	if err != nil {
		return err
	}
	return w.watch(ctx)
}

// watch returns when srun has ended, or has become another script's. It goes on when ctx ends, and hurries: nobody else ends srun then.
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
				return nil // what this script still does is nobody's business
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

// look sees whether the run is over, and whether it still is.
func (w *stepWatch) look() error {
	w.looked = time.Now()
	over, err := w.isOver()
	switch {
	case err != nil: // what was seen last holds, but nobody is signalled by that
	case !over:
		w.lastWord, w.forced = time.Time{}, time.Time{}
	case w.lastWord.IsZero():
		w.lastWord = w.looked
	}
	return err
}

// isOver tells whether the newest attempt's verdict is the run's last word in this job: agent 0, or who took its place, has written it
// into the ledger, too, which it does when all workers are gone, and the agents do not start them again.
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

// due is the signal that srun is to get now, if the run is over still; 0: none. TERM has it kill all tasks (Slurm 22.05); without srun
// Slurm does so.
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

// end ends srun, and with it the step, once its time is over.
func (w *stepWatch) end() {
	sig := w.due()
	if sig == 0 {
		return
	}
	if sig == syscall.SIGTERM {
		w.forced = time.Now()
		w.a.Env.Log.Warn("the run is over, and agents that were lost before do not end: srun is told to end its step", "after", w.leave)
	}
	_ = w.srun(sig) // it may have ended just now, as the next look tells
}
