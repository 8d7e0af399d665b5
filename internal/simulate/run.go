package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// Env describes the process that simulates, in the roles of Slurm and of the batch script.
type Env struct {
	attempt.Env
	Environ  []string                                 // of the batch script, without what Slurm adds
	Out      io.Writer                                // where the job's processes write
	Terminal func(w io.Writer) (columns int, ok bool) // reports whether w is a terminal
	Short    func(path string) string                 // a path as a user would type it
	ExitCode func(err error) int
}

// Run runs a job on pretend nodes. Of an array it runs as many elements at once as the array allows: the elements in only, or all. The
// pretend job ID is this process's ID.
func Run(ctx context.Context, e Env, run *rundir.Dir, job *jobfile.Job, p Pretend, only []int) error {
	if len(job.Setup.Modules)+len(job.Setup.Script) > 0 || job.Setup.Venv != "" || job.Setup.Conda != "" {
		e.Log.Warn("[setup] is ignored: only the batch script on a cluster uses it, and simulate runs in this shell's environment")
	}
	var array *slurm.Array
	if index, ok := run.Index(); ok { // only this element of an array that has begun before
		array, run = &slurm.Array{Indices: []int{index}}, run.Whole()
	} else {
		var err error
		if array, err = job.Array(); err != nil {
			return err
		}
		if array != nil && only != nil {
			array.Indices = only
		}
	}
	pid := os.Getpid()
	if err := e.SetJobID(run, strconv.Itoa(pid)); err != nil {
		return err
	}
	if array == nil {
		a, err := p.Allocation(job, pid)
		if err != nil {
			return err
		}
		return runJob(ctx, e, run, job, p, a)
	}
	return runArray(ctx, e, run, job, p, *array)
}

// sweepLimit limits the time to look for processes that pretend nodes have left behind.
const sweepLimit = 10 * time.Second

// adopt makes this process do what slurmstepd does with a cgroup: end kills whatever ended agents have left behind, even with sessions of
// their own and a cleared environment. It does not wait for the guards of agents that were killed. In the first process of a container it
// kills nothing, because the kernel ends everything in the container with that process.
func adopt(log *slog.Logger) (end func()) {
	reaper, err := proc.Subreaper()
	if err != nil {
		log.Warn("processes that leave their agents may outlive them", "error", err)
		return func() {}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
		defer cancel()
		swept, err := proc.SweepAdopted(ctx)
		if err != nil || len(swept.Left) > 0 {
			log.Warn("some processes of the pretend nodes may still run", "processes", swept.Left, "error", err)
		}
		if err := reaper.Close(); err != nil {
			log.Warn("this process stays the parent of orphans", "error", err)
		}
	}
}

// runArray runs the elements of an array, each in its own directory, as many at once as the array allows. The exit code is the largest of
// theirs.
func runArray(ctx context.Context, e Env, run *rundir.Dir, job *jobfile.Job, p Pretend, array slurm.Array) error {
	elements := sim.Elements(array, os.Getpid())
	limit := array.Limit
	if limit == 0 {
		limit = len(elements)
	}
	room := make(chan struct{}, limit)
	errs := make([]error, len(elements))
	var wg sync.WaitGroup
	for i, element := range elements {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs[i] = fmt.Errorf("it never began: %w", context.Cause(ctx))
			continue
		}
		wg.Go(func() {
			errs[i] = runElement(ctx, e, run, job, p, element)
			<-room
		})
	}
	wg.Wait()
	code := 0
	var failed []int
	for i, err := range errs {
		if err != nil {
			failed = append(failed, elements[i].Index)
			code = max(code, e.ExitCode(err))
			if coded, ok := errors.AsType[*exit.Error](err); !ok || coded.Err != nil {
				fmt.Fprintf(e.Err, "ddpbatch: element %d: %v\n", elements[i].Index, err)
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	what := fmt.Sprintf("element %d did not end well", failed[0])
	if len(elements) > 1 {
		what = fmt.Sprintf("%d of the array's %d elements did not end well: %s", len(failed), len(elements), text.Few(failed, mostNamed))
	}
	fmt.Fprintf(e.Err, "ddpbatch: %s; see ddpbatch status %s\n", what, slurm.ShellQuote(e.Short(run.Path())))
	fmt.Fprintf(e.Err, "resume: %s\n", submission.ResumeCommand(run))
	return &exit.Error{Code: code}
}

// mostNamed is how many elements that did not end well are named.
const mostNamed = 10

func runElement(ctx context.Context, e Env, run *rundir.Dir, job *jobfile.Job, p Pretend, element sim.Element) error {
	task, err := run.Task(element.Index)
	if err != nil {
		return err
	}
	if err := task.SetJobID(fmt.Sprintf("%d_%d", element.JobID, element.Index)); err != nil {
		return err
	}
	attempt.NameElement(e.Env, task)
	if job, err = job.Of(task); err != nil {
		return err
	}
	a, err := p.Allocation(job, element.OwnJobID())
	if err != nil {
		return err
	}
	a.Array = &element
	return runJob(ctx, e, task, job, p, a)
}

// runJob runs one job to its end, and prints what the user should know about that.
func runJob(ctx context.Context, e Env, run *rundir.Dir, job *jobfile.Job, p Pretend, a sim.Allocation) error {
	s, err := New(ctx, e, run, job, p, a)
	if err != nil {
		return err
	}
	w, err := s.Run(ctx)
	err = errors.Join(err, s.Close())
	if w.Verdict.Attempt == 0 { // it never began
		return err
	}
	return s.result(ctx, w, err)
}

// code returns the exit code of a simulated job: that of its last attempt, or of a run that was given up.
func (s *Job) code(ctx context.Context, w attempt.Ending) int {
	code := w.Verdict.Exit
	if w.Decision.Action == recovery.GiveUp && w.Decision.Why != w.Facts.Forbids { // otherwise whoever runs simulate may restart it
		code = exit.GivenUp(w.Verdict.Exit)
	}
	if w.Decision.Action == recovery.EndLink { // of the last link
		code = exit.Requeue
	}
	if stopped, byHand := errors.AsType[launch.SignalError](context.Cause(ctx)); byHand && code != 0 {
		return 128 + int(stopped.Sig)
	}
	return code
}

// result returns the error that ends a simulated job with its exit code.
func (s *Job) result(ctx context.Context, w attempt.Ending, err error) error {
	v, code := w.Verdict, s.code(ctx, w)
	_, byHand := errors.AsType[launch.SignalError](context.Cause(ctx))
	switch {
	case code == 0:
		if _, element := s.run.Index(); err == nil && !element && !s.job.Builtin() { // the built-in trainer has said where it is
			fmt.Fprintf(s.e.Err, "run directory: %s\n", s.e.Short(s.run.Path()))
		}
		return err
	case v.Saved && s.job.Builtin(): // rank 0 has said how to continue
	case byHand || v.Saved || w.Decision.Action == recovery.EndLink:
		fmt.Fprintf(s.e.Err, "%sresume: %s\n", s.out.label, submission.ResumeCommand(s.run))
	default:
		fmt.Fprintf(s.e.Err, "%slogs: %s\n", s.out.label, s.e.Short(s.run.LogsPath(v.Attempt)))
		if _, element := s.run.Index(); !element { // runArray prints the command for the whole array
			fmt.Fprintf(s.e.Err, "resume: %s\n", submission.ResumeCommand(s.run))
		}
	}
	return &exit.Error{Code: code, Err: err}
}
