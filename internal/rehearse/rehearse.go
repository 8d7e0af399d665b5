package rehearse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm/sim"
)

// Rehearsal is one job run twice: undisturbed, and with a disturbance.
type Rehearsal struct {
	Env      simulate.Env
	Pretend  simulate.Pretend
	Sets     []string // overrides of the job file
	Patterns []string // of files to compare
	Within   inspect.Tolerance
	Steps    int64 // after which both runs end; 0: see DefaultSteps
	// Parse reads the job with these overrides. NewRun creates its run directory.
	Parse  func(sets []string) (*jobfile.Job, error)
	NewRun func(sets []string, p simulate.Pretend) (*rundir.Dir, *jobfile.Job, error)

	dir string // holds both run directories
}

// Run runs the job, undisturbed and disturbed, in directories below dir.
func (r *Rehearsal) Run(ctx context.Context, dir string) (straight, disturbed Outcome, err error) {
	r.dir = dir
	if straight, err = r.simulate(ctx, "uninterrupted", nil); err != nil || straight.Verdict.Exit != 0 {
		return straight, disturbed, err
	}
	disturbed, err = r.interrupt(ctx, straight)
	return straight, disturbed, err
}

// tries is the number of attempts at the default warning, each with an earlier moment, if it came too late.
const tries = 3

// interrupt runs the job again with the requested faults, or with one warning in the middle.
func (r *Rehearsal) interrupt(ctx context.Context, straight Outcome) (Outcome, error) {
	if len(r.Pretend.Faults) > 0 {
		return r.simulate(ctx, "interrupted", r.Pretend.Faults)
	}
	for try := 1; ; try++ {
		name := "interrupted"
		if try > 1 {
			name = fmt.Sprintf("interrupted-%d", try)
		}
		again, err := r.simulate(ctx, name, []sim.Fault{straight.warning(try)})
		if err != nil || try == tries || !again.late() {
			return again, err
		}
		fmt.Fprintln(r.Env.Err, "ddpbatch: the warning came too late; trying again with an earlier one")
	}
}

// DefaultSteps is the largest number of steps in a rehearsal without --steps: enough for an interruption with checkpoints before and after
// it. More steps would not prove more.
const DefaultSteps = 500

// Shorten makes both runs end early, at the same step. That works only with the built-in trainer.
func (r *Rehearsal) Shorten() error {
	job, err := r.Parse(r.Sets)
	if err != nil {
		return nil // the first run reports the error
	}
	steps := r.Steps
	switch {
	case !job.Builtin() && steps > 0:
		return &usage.Error{Message: "--steps shortens only jobs of the built-in trainer",
			Hint: "give your own program fewer steps by its own flags"}
	case !job.Builtin() || steps == 0 && job.Train.MaxSteps > 0: // the job's own limit applies
		r.Steps = 0
		return nil
	case steps == 0:
		steps = DefaultSteps
		for _, f := range r.Pretend.Faults {
			steps = max(steps, 2*f.Step)
		}
	}
	r.Steps = steps
	r.Sets = append(slices.Clip(r.Sets), "train.max_steps="+strconv.FormatInt(steps, 10))
	return nil
}

// Outcome is the result of one of the two runs of a rehearsal.
type Outcome struct {
	Name         string
	Run          *rundir.Dir
	Job          *jobfile.Job
	Verdict      rundir.Verdict // of the last attempt
	Attempts     int
	Steps        int64 // of the whole run; 0 if not known
	Took         time.Duration
	AfterWarning time.Duration // from its last warning to its end; 0 if there was no warning
}

// warningTime is long enough for a command to notice a warning and to act on it: agent 0 looks for the stop file once a second.
const warningTime = 3 * time.Second

// late reports whether a warning may have come too late for the run to act on it, or never came.
func (p Outcome) late() bool {
	return p.Attempts < 2 && p.Verdict.Exit == 0 && p.AfterWarning < warningTime
}

// ignored reports whether a command had time to act on a warning, and ended as if there had been none. The built-in trainer never ignores
// one.
func (p Outcome) ignored() bool {
	return p.Attempts < 2 && p.AfterWarning >= warningTime && !p.Job.Builtin()
}

// simulate runs the job in a directory of its own, without its output.
func (r *Rehearsal) simulate(ctx context.Context, name string, faults []sim.Fault) (Outcome, error) {
	p := r.Pretend
	p.Faults, p.Quiet = faults, true
	sets := append(slices.Clip(r.Sets), "run_dir="+filepath.Join(r.dir, name))
	if job, err := r.Parse(sets); err == nil && job.ExportPath() != "" {
		sets = append(sets, `train.export=""`) // the user's file must be that of the real run
	}
	if job, err := r.Parse(sets); err == nil && len(job.Launch.OnEnd) > 0 {
		sets = append(sets, "launch.on_end=[]") // no notifications about a rehearsal
	}
	if job, err := r.Parse(sets); err == nil && job.Launch.MetricsDir+job.Launch.MetricsListen != "" {
		sets = append(sets, `launch.metrics_dir=""`, `launch.metrics_listen=""`) // no metrics among those of the site's jobs
	}
	run, job, err := r.NewRun(sets, p)
	if err != nil {
		return Outcome{}, err
	}
	done := Outcome{Name: name, Run: run, Job: job}
	a, err := p.Allocation(job, os.Getpid())
	if err == nil {
		err = r.Env.SetJobID(run, strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		return done, err
	}
	fmt.Fprintf(r.Env.Err, "ddpbatch: rehearse %s: %s\n", name, job.Summary())
	s, err := simulate.New(ctx, r.Env, run, job, p, a)
	if err != nil {
		return done, err
	}
	begin := time.Now()
	end, err := s.Run(ctx)
	done.Verdict = end.Verdict
	done.Took = time.Since(begin)
	if err = errors.Join(err, s.Close()); err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return done, err
	}
	if m, ok, err := run.LastMetrics(); err == nil && ok {
		done.Steps = m.Steps
	}
	if done.Attempts, err = run.NewestAttempt(); err != nil {
		return done, err
	}
	done.AfterWarning, err = afterWarning(run, done.Verdict.Time)
	return done, err
}

// afterWarning returns the time from the last warning until end.
func afterWarning(run *rundir.Dir, end time.Time) (after time.Duration, err error) {
	history, err := run.Ledger()
	for _, event := range history {
		if event.Event == simulate.EventFault && strings.HasPrefix(event.Detail, string(sim.Warn)) {
			after = max(1, end.Sub(event.Time))
		}
	}
	return after, err
}

// warning returns the fault that warns a run like p in its middle, and earlier at each further try. The warning goes to the tasks, which
// receive it at once. The stop file of a batch script is looked for only once a second, and many short runs would end before that.
func (p Outcome) warning(try int) sim.Fault {
	f := sim.Fault{Kind: sim.Warn, Rank: -1, Everybody: true}
	if p.Steps > 1 {
		f.Step = max(1, p.Steps>>try)
		f.Text = fmt.Sprintf("warn:all@step=%d", f.Step)
	} else {
		f.Time = max(time.Millisecond, (p.Took >> try).Round(time.Millisecond))
		f.Text = fmt.Sprintf("warn:all@time=%v", f.Time)
	}
	return f
}
