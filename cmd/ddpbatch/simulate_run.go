package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submit"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm/sim"
)

// simulateRun runs a job as pretend nodes, and an array of jobs as many as it may at once. The pretend job id is this process's.
func simulateRun(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job, p pretend) error {
	if len(job.Setup.Modules)+len(job.Setup.Script) > 0 || job.Setup.Venv != "" || job.Setup.Conda != "" {
		e.log().Warn("[setup] belongs to the cluster's batch script; simulate runs in this shell's environment")
	}
	defer bearClosedPipes()()
	array, err := arrayOf(job)
	if err != nil {
		return err
	}
	if path, index, ok := elementOf(run); ok { // of an array that was begun before, this element alone
		n, err := strconv.Atoi(index)
		if err != nil {
			return err
		}
		array = &sim.Array{Indices: []int{n}}
		if run, err = rundir.Open(path); err != nil {
			return err
		}
	}
	pid := os.Getpid()
	if err := e.submitEnv().SetJobID(run, strconv.Itoa(pid)); err != nil {
		return err
	}
	if array == nil {
		a, err := p.allocation(job, pid)
		if err != nil {
			return err
		}
		return simulateJob(ctx, e, run, job, p, a)
	}
	return simulateArray(ctx, e, run, job, p, *array)
}

// simulateArray runs the elements of an array, each in a directory of its own, as many at once as the array allows. The exit code is
// the largest of theirs.
func simulateArray(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job, p pretend, array sim.Array) error {
	elements := array.Elements(os.Getpid())
	limit := array.Limit
	if limit == 0 {
		limit = len(elements)
	}
	room := make(chan struct{}, limit)
	errs := make([]error, len(elements))
	var wg sync.WaitGroup
	waiting := 0 // that never began
	for i, element := range elements {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs[i] = fmt.Errorf("it never began: %w", context.Cause(ctx))
			waiting++
			continue
		}
		wg.Go(func() {
			errs[i] = simulateElement(ctx, e, run, job, p, element)
			<-room
		})
	}
	wg.Wait()
	code, failed := 0, 0
	for i, err := range errs {
		if err != nil {
			failed++
			code = max(code, exitCode(err))
			var coded *codeError
			if !errors.As(err, &coded) || coded.err != nil {
				fmt.Fprintf(e.Err, "ddpbatch: element %d: %v\n", elements[i].Index, err)
			}
		}
	}
	if failed == 0 {
		return nil
	}
	fmt.Fprintf(e.Err, "ddpbatch: %d of the array's %s did not end well\n", failed, plural(len(elements), "element"))
	if waiting > 0 {
		fmt.Fprintf(e.Err, "resume: %s\n", submit.ResumeCommand(run))
	}
	return &codeError{code: code}
}

func simulateElement(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job, p pretend, element sim.Element) error {
	task, err := run.Task(element.Index)
	if err != nil {
		return err
	}
	if err := task.SetJobID(fmt.Sprintf("%d_%d", element.JobID, element.Index)); err != nil {
		return err
	}
	a, err := p.allocation(job, element.OwnJobID())
	if err != nil {
		return err
	}
	a.Array = &element
	return simulateJob(ctx, e, task, job, p, a)
}

// simulateJob runs one job to its end, and says what a person should know of it.
func simulateJob(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job, p pretend, a sim.Allocation) error {
	s, err := newSimulated(ctx, e, run, job, p, a)
	if err != nil {
		return err
	}
	w, err := s.play(ctx)
	err = errors.Join(err, s.close())
	if w.Verdict.Attempt == 0 { // it never began
		return err
	}
	return s.tell(ctx, w, err)
}

// tell ends a simulated job with the exit code of its last attempt, or of a run that was given up.
func (s *simulated) tell(ctx context.Context, w attempt.Ending, err error) error {
	v, code := w.Verdict, w.Verdict.Exit
	if w.Decision.Action == recovery.GiveUp && w.Decision.Why != w.Facts.Forbids { // else whoever runs simulate may start it again
		code = attempt.GivenUpCode(v.Exit)
	}
	var stopped launch.SignalError
	byHand := errors.As(context.Cause(ctx), &stopped)
	switch {
	case code == 0:
		return err
	case v.Saved && s.job.Builtin(): // rank 0 has said how to go on
	case byHand || v.Saved:
		fmt.Fprintf(s.e.Err, "resume: %s\n", submit.ResumeCommand(s.run))
	default:
		fmt.Fprintf(s.e.Err, "logs: %s\n", s.e.short(s.run.LogsPath(v.Attempt)))
	}
	if byHand {
		code = 128 + int(stopped.Sig)
	}
	return &codeError{code: code, err: err}
}
