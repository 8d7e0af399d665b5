package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/attempt"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/placement"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submit"
	"ddpbatch/internal/tensorboard"
	"ddpbatch/mpi"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

func newTrainCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "train",
		Usage:       "be one rank of the built-in trainer; alone: a world of one",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch train job.toml", `srun -n8 bash -c 'eval "$(ddpbatch env)"; exec ddpbatch train job.toml'`),
		Flags:       []cli.Flag{exportFlag(), setFlag()},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() && e.get("DDPBATCH_RUN_DIR") != "" {
				return runTrain(c.Context, e, "", nil) // a rank that an agent started
			}
			path, err := oneArg(c, "job file")
			if err != nil {
				return err
			}
			return runTrain(c.Context, e, e.abs(path), withExport(e, c, c.StringSlice("set")))
		},
	}
}

func runTrain(ctx context.Context, e *env, path string, sets []string) error {
	if err := refuseSingleton(e); err != nil {
		return err
	}
	r := &rank{e: e, path: path, sets: sets}
	if err := r.loadJob(ctx); err != nil {
		return err
	}
	return r.work(ctx)
}

// trainAgain goes on with a run that `ddpbatch train` made.
func trainAgain(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job) error {
	if err := refuseSingleton(e); err != nil {
		return err
	}
	r := &rank{e: e, job: job, run: run}
	return r.work(ctx)
}

// refuseSingleton stops tasks of one srun that would each train alone, unaware of each
// other.
func refuseSingleton(e *env) error {
	if _, ok := e.lookup("WORLD_SIZE"); ok {
		return nil
	}
	alloc, err := slurm.FromEnviron(e.lookup)
	tasks := tasksOf(e) // without a job, too: somebody cleared half of the environment
	switch {
	case err == nil:
		tasks = alloc.Tasks
	case !errors.Is(err, slurm.ErrNotInSlurm):
		return usagef("%v", err)
	}
	if tasks <= 1 {
		return nil
	}
	return &usageError{
		message: fmt.Sprintf("SLURM_NTASKS is %d, but this rank would train alone (WORLD_SIZE is not set)", tasks),
		hint:    `use "srun ddpbatch run --", or eval "$(ddpbatch env)" in each task first`,
	}
}

// tasksOf is SLURM_NTASKS; 0 where it is not set or no number.
func tasksOf(e *env) int {
	return placement.Tasks(e.lookup)
}

// joinWorld meets the other ranks by env://, or stays alone where nobody said that there are any.
func joinWorld(ctx context.Context, e *env, cfg mpi.Config) (*mpi.Comm, error) {
	size, ok := e.lookup("WORLD_SIZE")
	if !ok || size == "1" {
		return mpi.Self(), nil
	}
	comm, err := mpi.InitEnv(ctx, e.lookup, cfg, e.log())
	if err != nil {
		return nil, fmt.Errorf("meet the other ranks: %w", err)
	}
	return comm, nil
}

// rank is one rank of the built-in trainer.
type rank struct {
	e     *env
	path  string // "" : the job of the run directory
	sets  []string
	job   *jobfile.Job
	text  []byte
	comm  *mpi.Comm
	heart *heartbeat

	deadline  time.Time // when the allocation ends; zero: nobody knows
	outOfTime bool      // training has stopped because of it

	// on rank 0 alone
	run         *rundir.Dir
	attempt     int
	claimed     bool // by this rank, which then owes the verdict
	checkpoints *checkpoint.Dir
	metrics     io.WriteCloser
	events      *tensorboard.Writer // nil: the job does not ask for them
	exported    string              // the file with the final model; empty: none
}

func (r *rank) loadJob(ctx context.Context) (err error) {
	if r.path == "" {
		if r.run, err = rundir.OpenOwn(r.e.get("DDPBATCH_RUN_DIR")); err != nil {
			return err
		}
		if r.attempt, err = strconv.Atoi(r.e.get("DDPBATCH_ATTEMPT")); err != nil || r.attempt < 1 {
			return usagef("DDPBATCH_RUN_DIR is set, and DDPBATCH_ATTEMPT is %q: the agent sets both", r.e.get("DDPBATCH_ATTEMPT"))
		}
		r.job, err = jobOf(r.run)
		return err
	}
	if r.job, r.text, err = loadJob(ctx, r.e, r.path, r.sets); err != nil {
		return err
	}
	if !r.job.Builtin() {
		return usagef("%s runs a command, not the built-in trainer; leave launch.command out", r.path)
	}
	return missingData(r.job)
}

// work joins the world and trains.
func (r *rank) work(ctx context.Context) (err error) {
	if r.deadline, err = attempt.Deadline(r.e.lookup); err != nil {
		return err
	}
	r.heart = newHeartbeat(r.e.get("DDPBATCH_HEARTBEAT_FILE"), r.e.log())
	if r.comm, err = joinWorld(ctx, r.e, r.job.MPI); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.comm.Close()) }()
	if r.comm.Rank() == 0 {
		if err := r.openRun(); err != nil {
			return err
		}
	}
	err = r.train(ctx)
	if r.claimed {
		v := r.verdict(ctx, err)
		err = errors.Join(err, r.run.WriteVerdict(v), r.run.Settle(v.Exit != exitMismatch))
	}
	return err
}

// verdict is that of an attempt without an agent, which ended with err.
func (r *rank) verdict(ctx context.Context, err error) rundir.Verdict {
	v := rundir.Verdict{
		Attempt: r.attempt, Cause: "done", FirstRank: -1, Host: r.e.Hostname, Exit: exitCode(err), Time: r.e.Now(),
		Message: "training is done",
	}
	v.Saved = v.Exit == exitRequeue // a trainer ends with it once what it did is saved
	switch {
	case err != nil && ctx.Err() != nil:
		v.Cause, v.Message = "cancelled", fmt.Sprint(context.Cause(ctx))
	case v.Exit == exitRequeue && r.outOfTime:
		v.Cause, v.Message = "stopped", "stopped in time to save before the deadline"
	case v.Exit == exitRequeue:
		v.Cause, v.Message = "stopped", "stopped, as another rank was asked to"
	case err != nil:
		v.Cause, v.FirstRank, v.Message = "crash", 0, err.Error()
	}
	if m, ok, err := r.run.LastMetrics(); err == nil && ok {
		v.Step = m.Step
	}
	return v
}

// openRun opens what only rank 0 writes: checkpoints and metrics. A rank that nobody launched
// makes a run directory of its own.
func (r *rank) openRun() (err error) {
	if r.run == nil {
		if r.run, err = newRun(r.e, "train", r.job, r.path, r.text, r.sets); err != nil {
			return err
		}
	}
	if r.attempt == 0 {
		if r.attempt, err = r.run.ClaimAttempt(); err != nil {
			return err
		}
		r.claimed = true
	}
	r.checkpoints, err = checkpoint.Open(r.run.CheckpointsPath(), checkpoint.Options{
		Codec: r.job.Checkpoint.Codec, Keep: r.job.Checkpoint.Policy(r.job.Train.Evaluate.Best), Run: r.run.Spec().Run, Attempt: r.attempt,
		FS: r.heart.fs(), Fence: func() error { return r.run.Fence(r.attempt) }, Workers: threadsOf(r.e), Log: r.e.log(),
	})
	if err != nil {
		return err
	}
	if r.metrics, err = openMetrics(r.run.MetricsPath()); err != nil {
		return fmt.Errorf("open the metrics file: %w", err)
	}
	if r.job.Train.TensorBoard {
		if r.events, err = tensorboard.Create(r.run.TensorBoardPath(), r.e.Now(), r.e.Hostname); err != nil {
			return err
		}
	}
	return nil
}

// openMetrics opens the file to append to, and ends the line that an attempt that died, or a full
// disk, has cut short.
func openMetrics(path string) (io.WriteCloser, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	last := make([]byte, 1)
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			_, _ = f.Write([]byte{'\n'}) // where it fails, so will the metrics, which say so
		}
	}
	return f, nil
}

// nodeOf tells this rank's node from the others: by its number, which launchers give, as simulated ones have one name.
func nodeOf(e *env) string {
	if n, ok := e.lookup("GROUP_RANK"); ok {
		return n
	}
	name, _ := os.Hostname() // "": all ranks are on one node, then
	return name
}

func (r *rank) train(ctx context.Context) error {
	stop, end := r.askedToStop(ctx)
	defer end()
	saves := r.job.Checkpoint
	cfg := trainer.Env{
		Comm: r.comm, Checkpoints: r.checkpoints, EverySteps: saves.EverySteps, Resume: saves.Resume == "auto",
		AtStart: saves.AtStart, KeepBest: saves.KeepBest > 0, Async: saves.Async, Delta: saves.Delta, MaxMemory: saves.Memory, Local: saves.Local,
		Replicate: saves.Replicate, Node: nodeOf(r.e),
		Deadline: r.deadline, WorkDir: r.job.WorkDir, Attempt: r.attempt,
		Out: unchecked(r.e.Out), Every: speakEvery, Alive: r.heart.beat, Stop: stop, Clock: r.e.Now, Log: r.e.log(),
		FS: r.heart.fs(), Threads: threadsOf(r.e), LibraryDirs: libraryDirs(r.e),
	}
	if r.run != nil {
		cfg.AnewFrom = r.run.AnewFrom()
	}
	if r.metrics != nil {
		cfg.Metrics = r.metrics
	}
	if r.events != nil {
		cfg.Scalars = r.events.Scalars
	}
	// A stop is agreed on by all ranks at a step's end: the signal must not tear a collective.
	result, err := trainer.Run(context.WithoutCancel(ctx), r.job.Train, cfg)
	r.outOfTime = result.OutOfTime
	if r.metrics != nil {
		if cerr := r.metrics.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close the metrics file: %w", cerr)
		}
	}
	if r.events != nil {
		if cerr := r.events.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close the TensorBoard events: %w", cerr)
		}
	}
	var exporting error
	if err == nil && !result.Stopped && r.comm.Rank() == 0 {
		exporting = r.export(context.WithoutCancel(ctx), result)
	}
	if err != nil {
		r.letOthersFailFirst(ctx, err)
		return fmt.Errorf("rank %d: %w", r.comm.Rank(), err)
	}
	if r.comm.Rank() == 0 {
		r.sayEnd(result)
	}
	if exporting != nil {
		return exporting
	}
	if result.Stopped {
		return &codeError{code: exitRequeue}
	}
	return nil
}

// victimWait is how long a rank that only lost its peers waits to be stopped: its agent hears of
// the lost rank's own end well within that.
const victimWait = 5 * time.Second

// letOthersFailFirst holds a rank back whose only trouble is that another one has failed. Word of that
// reaches it sooner than that rank's exit reaches the agents, and the run's verdict must name the rank
// that failed, not the first one to notice. The agent's TERM ends the wait.
func (r *rank) letOthersFailFirst(ctx context.Context, err error) {
	victim := errors.Is(err, trainer.ErrElsewhere) || errors.Is(err, mpi.ErrLost) || errors.Is(err, mpi.ErrLeft) || errors.Is(err, mpi.ErrAborted)
	if launched := r.e.get("DDPBATCH_STORE") != ""; launched && victim {
		select {
		case <-ctx.Done():
		case <-time.After(victimWait):
		}
	}
}

// sayEnd prints where the checkpoint is and how to go on.
func (r *rank) sayEnd(result trainer.Result) {
	var more []string
	if result.Early || !result.Stopped {
		more = moreTraining(r.job.Train, result.Steps, result.Epochs, result.Early)
	}
	out := unchecked(r.e.Out)
	if result.OutOfTime {
		fmt.Fprintln(out, "stopped in time to save before the deadline")
	}
	if result.Checkpoint != "" {
		fmt.Fprintf(out, "checkpoint: %s\n", result.Checkpoint)
	}
	if result.Best != "" {
		fmt.Fprintf(out, "best: %s\n", result.Best)
	}
	if r.exported != "" {
		fmt.Fprintf(out, "export: %s\n", r.exported)
	}
	fmt.Fprintf(out, "resume: %s\n", submit.ResumeCommand(r.run, more...))
}

// moreTraining are the settings with which a run goes on that has ended by itself, after so many steps and epochs: twice what ended it, which
// may be several at one step. early: that its evaluations got no better did.
func moreTraining(t trainer.Config, steps int64, epochs int, early bool) []string {
	var sets []string
	if early {
		sets = append(sets, "train.evaluate.patience="+strconv.Itoa(2*t.Evaluate.Patience))
	}
	if t.MaxSteps > 0 && steps >= int64(t.MaxSteps) {
		sets = append(sets, "train.max_steps="+strconv.FormatInt(2*steps, 10))
	}
	if len(sets) == 0 || epochs >= t.Epochs {
		sets = append(sets, "train.epochs="+strconv.Itoa(2*max(t.Epochs, epochs)))
	}
	return sets
}
