package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/simulate"
	"ddpbatch/slurm/sim"
)

// performance is one of the two runs of a rehearsal, to its end.
type performance struct {
	name     string
	run      *rundir.Dir
	job      *jobfile.Job
	verdict  rundir.Verdict // of the last attempt
	attempts int
	steps    int64 // of the whole run; 0: not known
	took     time.Duration
	deaf     time.Duration // how long it ran on after its last warning, to its end; 0: there was none
}

// heedTime is enough for a command to hear of a warning and to act: agent 0 looks for the stop file once a second.
const heedTime = 3 * time.Second

// late tells whether a warning may have come too late for the run to heed it, or its moment never came.
func (p performance) late() bool { return p.attempts < 2 && p.verdict.Exit == 0 && p.deaf < heedTime }

// ignored tells whether a command had time to heed a warning, and ended as if there had been none. The built-in trainer does not do that.
func (p performance) ignored() bool { return p.attempts < 2 && p.deaf >= heedTime && !p.job.Builtin() }

// perform runs the job in a directory of its own, without its output.
func (r *rehearsal) perform(ctx context.Context, name string, faults []sim.Fault) (performance, error) {
	p, source := r.pretend, r.source
	p.Faults, p.Quiet = faults, true
	source.sets = append(source.sets[:len(source.sets):len(source.sets)], "run_dir="+filepath.Join(r.dir, name))
	if job, _, err := jobfile.Parse(filepath.Base(source.path), filepath.Dir(source.path), source.text, source.sets); err == nil && job.ExportPath() != "" {
		source.sets = append(source.sets, `train.export=""`) // the user's file is that of the real run
	}
	run, job, err := newSimulation(r.e, source, p)
	if err != nil {
		return performance{}, err
	}
	done := performance{name: name, run: run, job: job}
	a, err := p.Allocation(job, os.Getpid())
	if err == nil {
		err = r.e.submitEnv().SetJobID(run, strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		return done, err
	}
	fmt.Fprintf(r.e.Err, "ddpbatch: rehearse %s: %s\n", name, jobSummary(job))
	s, err := simulate.New(ctx, r.e.simulateEnv(), run, job, p, a)
	if err != nil {
		return done, err
	}
	begin := time.Now()
	end, err := s.Play(ctx)
	done.verdict = end.Verdict
	done.took = time.Since(begin)
	if err = errors.Join(err, s.Close()); err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return done, err
	}
	if m, ok, err := run.LastMetrics(); err == nil && ok {
		done.steps = m.Steps
	}
	if done.attempts, err = run.NewestAttempt(); err != nil {
		return done, err
	}
	done.deaf, err = afterWarning(run, done.verdict.Time)
	return done, err
}

// afterWarning is the time from the last fault that was a warning until end.
func afterWarning(run *rundir.Dir, end time.Time) (after time.Duration, err error) {
	history, err := run.Ledger()
	for _, event := range history {
		if event.Event == simulate.EventFault && strings.HasPrefix(event.Detail, string(sim.Warn)) {
			after = max(1, end.Sub(event.Time))
		}
	}
	return after, err
}

// warning is the fault that stops a run like p in its middle, and earlier at each further try. Tasks hear of it at once, where
// a batch script's stop file is looked for once a second only, which many a short run does not live to see.
func (p performance) warning(try int) sim.Fault {
	f := sim.Fault{Kind: sim.Warn, Rank: -1, Everybody: true}
	if p.steps > 1 {
		f.Step = max(1, p.steps>>try)
		f.Text = fmt.Sprintf("warn:all@step=%d", f.Step)
	} else {
		f.Time = max(time.Millisecond, (p.took >> try).Round(time.Millisecond))
		f.Text = fmt.Sprintf("warn:all@time=%v", f.Time)
	}
	return f
}
