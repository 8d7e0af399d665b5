package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/placement"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/tensorboard"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// Rank is one rank of the built-in trainer.
type Rank struct {
	Job     *jobfile.Job
	Run     *rundir.Dir // nil: no agent started this rank, which then calls NewRun
	Attempt int         // 0: this rank claims one
	NewRun  func() (*rundir.Dir, error)

	Lookup   func(name string) (string, bool) // looks up a variable of this process
	Hostname string
	Now      func() time.Time
	Out      io.Writer
	Log      *slog.Logger
	ExitCode func(error) int

	comm  *mpi.Comm
	heart *heartbeat

	deadline  time.Time // when the allocation ends; zero: unknown
	outOfTime bool      // training has stopped because of the deadline

	// only on rank 0
	claimed     bool // this rank has claimed the attempt, and must write the verdict
	checkpoints *checkpoint.Dir
	metrics     io.WriteCloser
	events      *tensorboard.Writer // nil: the job does not ask for them
	exported    string              // the file with the final model; empty: none
}

func (r *Rank) get(name string) string {
	value, _ := r.Lookup(name)
	return value
}

// Work joins the world and trains.
func (r *Rank) Work(ctx context.Context) (err error) {
	if r.deadline, err = jobenv.Deadline(r.Lookup); err != nil {
		return err
	}
	r.heart = newHeartbeat(r.get("DDPBATCH_HEARTBEAT_FILE"), r.Log)
	if r.comm, err = JoinWorld(ctx, r.Lookup, r.Job.MPI, r.Log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.comm.Close()) }()
	defer r.recordOnQuit()()
	if r.comm.Rank() == 0 {
		err = r.openRun()
	}
	if err == nil {
		err = r.train(ctx)
	}
	if r.claimed { // also if openRun failed: other commands take an attempt without a verdict for a running one
		v := r.verdict(ctx, err)
		err = errors.Join(err, r.Run.WriteVerdict(v), r.Run.FinalizeOverride(v.Exit != exit.Mismatch))
	}
	return err
}

// verdict returns the verdict of an attempt without an agent that ended with err.
func (r *Rank) verdict(ctx context.Context, err error) rundir.Verdict {
	v := rundir.Verdict{
		Attempt: r.Attempt, Cause: "done", FirstRank: -1, Host: r.Hostname, Exit: r.ExitCode(err), Time: r.Now(),
		Message: "training is done",
	}
	v.Saved = v.Exit == exit.Requeue // a trainer ends with this code only after a save
	switch {
	case err != nil && ctx.Err() != nil:
		v.Cause, v.Message = "cancelled", fmt.Sprint(context.Cause(ctx))
	case v.Exit == exit.Requeue && r.outOfTime:
		v.Cause, v.Message = "stopped", "stopped in time to save before the deadline"
	case v.Exit == exit.Requeue:
		v.Cause, v.Message = "stopped", "stopped, as another rank was asked to"
	case err != nil:
		v.Cause, v.FirstRank, v.Message = "crash", 0, err.Error()
	}
	if m, ok, err := r.Run.LastMetrics(); err == nil && ok {
		v.Step = m.Step
	}
	return v
}

// openRun opens what only rank 0 writes: checkpoints and metrics. A rank that no agent started
// makes a run directory of its own.
func (r *Rank) openRun() (err error) {
	if r.Run == nil {
		if r.Run, err = r.NewRun(); err != nil {
			return err
		}
	}
	if r.Attempt == 0 {
		if r.Attempt, err = r.Run.ClaimAttempt(); err != nil {
			return err
		}
		r.claimed = true
	}
	r.checkpoints, err = checkpoint.Open(r.Run.CheckpointsPath(), checkpoint.Options{
		Codec: r.Job.Checkpoint.Codec, Keep: r.Job.Checkpoint.Policy(r.Job.Train.Evaluate.Best), Run: r.Run.Spec().Run, Attempt: r.Attempt,
		FS: r.heart.fs(), Fence: func() error { return r.Run.Fence(r.Attempt) }, Workers: r.threads(), Log: r.Log,
	})
	if err != nil {
		return err
	}
	if r.metrics, err = r.Run.OpenMetrics(); err != nil {
		return err
	}
	if r.Job.Train.TensorBoard {
		if r.events, err = tensorboard.Create(r.Run.TensorBoardPath(), r.Now(), r.Hostname); err != nil {
			return err
		}
	}
	return nil
}

// node returns what identifies this rank's node: its number, if a launcher has set it, as simulated nodes share one host name; otherwise
// its host name.
func (r *Rank) node() string {
	if n, ok := r.Lookup("GROUP_RANK"); ok {
		return n
	}
	name, _ := os.Hostname() // "": all ranks count as on one node
	return name
}

func (r *Rank) train(ctx context.Context) error {
	stop, end := r.askedToStop(ctx)
	defer end()
	saves := r.Job.Checkpoint
	cfg := trainer.Env{
		Comm: r.comm, Checkpoints: r.checkpoints, EverySteps: saves.EverySteps, Resume: saves.Resume == "auto",
		AtStart: saves.AtStart, KeepBest: saves.KeepBest > 0, Async: saves.Async, Delta: saves.Delta,
		MaxMemory: saves.Memory, Local: saves.Local,
		Replicate: saves.Replicate, Node: r.node(),
		Deadline: r.deadline, WorkDir: r.Job.WorkDir, Attempt: r.Attempt,
		Out: r.Out, Every: speakEvery, Alive: r.heart.beat, Progress: r.heart.progress, Stop: stop, Clock: r.Now, Log: r.Log,
		FS: r.heart.fs(), Threads: r.threads(), LibraryDirs: r.libraryDirs(),
	}
	if r.Run != nil {
		cfg.AnewFrom = r.Run.AnewFrom()
	}
	if r.metrics != nil {
		cfg.Metrics = r.metrics
	}
	if r.events != nil {
		cfg.Scalars = r.events.Scalars
	}
	// All ranks agree on a stop at a step's end: a signal must not interrupt a collective.
	result, err := trainer.Run(context.WithoutCancel(ctx), r.Job.Train, cfg)
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
	if err != nil {
		r.letOthersFailFirst(ctx, err)
		return ofRank(r.comm.Rank(), err)
	}
	if r.comm.Rank() == 0 {
		if !result.Stopped {
			err = r.export(context.WithoutCancel(ctx), result)
		}
		r.printEnd(result)
	}
	if err != nil {
		return err
	}
	if result.Stopped {
		return &exit.Error{Code: exit.Requeue}
	}
	return nil
}

// ofRank adds the rank to an error that does not name it yet. The errors of collectives name the rank that failed.
func ofRank(rank int, err error) error {
	named := fmt.Sprintf("rank %d: ", rank)
	if strings.Contains(err.Error(), named) {
		return err
	}
	return fmt.Errorf("%s%w", named, err)
}

// victimWait is how long a rank that has only lost its peers waits to be stopped: its agent learns of
// the lost rank's own end well within that.
const victimWait = 5 * time.Second

// letOthersFailFirst delays the end of a rank that failed only because another rank has failed. It learns of that
// sooner than the agents learn of the other rank's exit, and the run's verdict must name the rank
// that failed, not the first one to notice. The agent's TERM ends the wait.
func (r *Rank) letOthersFailFirst(ctx context.Context, err error) {
	victim := errors.Is(err, trainer.ErrElsewhere) || errors.Is(err, mpi.ErrLost) || errors.Is(err, mpi.ErrLeft) ||
		errors.Is(err, mpi.ErrAborted)
	if launched := r.get("DDPBATCH_STORE") != ""; launched && victim {
		select {
		case <-ctx.Done():
		case <-time.After(victimWait):
		}
	}
}

// printEnd prints where the checkpoint is and how to resume.
func (r *Rank) printEnd(result trainer.Result) {
	var more []string
	if result.Early || !result.Stopped {
		more = r.Job.MoreTraining(result.Steps, result.Epochs, result.Early)
	}
	out := r.Out
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
	fmt.Fprintf(out, "resume: %s\n", submission.ResumeCommand(r.Run, more...))
}

// export writes the model of the last step to the file that the job names.
func (r *Rank) export(ctx context.Context, result trainer.Result) error {
	file := r.Job.ExportPath()
	if file == "" || result.Checkpoint == "" {
		return nil
	}
	saved, err := r.checkpoints.Find(ctx, result.Steps)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer saved.Close()
	x, err := inspect.NewExport(saved, "", false)
	if err == nil {
		err = x.Write(ctx, inspect.SafetensorsFile, file)
	}
	if err != nil {
		return err
	}
	r.exported = file
	return nil
}

// speakEvery is how often a rank reports progress in the middle of an epoch.
const speakEvery = 10 * time.Second

// threads returns how many cores the built-in trainer computes on: OMP_NUM_THREADS, which the launcher or the user has set, or else the
// number of cores that this process may run on.
func (r *Rank) threads() int {
	if n, err := strconv.Atoi(r.get("OMP_NUM_THREADS")); err == nil && n > 0 {
		return n
	}
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return 1
	}
	return max(1, mask.Count())
}

// libraryDirs returns the folders in which a BLAS library may be that the system's loader does not find.
func (r *Rank) libraryDirs() []string {
	if conda := r.get("CONDA_PREFIX"); conda != "" {
		return []string{filepath.Join(conda, "lib")}
	}
	return nil
}

// RefuseSingleton returns an error if this is one of several tasks of an srun that would each train
// alone.
func RefuseSingleton(lookup func(string) (string, bool)) error {
	if _, ok := lookup("WORLD_SIZE"); ok {
		return nil
	}
	alloc, err := slurm.FromEnviron(lookup)
	tasks := placement.Tasks(lookup) // also without SLURM_JOB_ID: part of the environment may have been cleared
	switch {
	case err == nil:
		tasks = alloc.Tasks
	case !errors.Is(err, slurm.ErrNotInSlurm):
		return usage.Errorf("%v", err)
	}
	if tasks <= 1 {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("SLURM_NTASKS is %d, but this rank would train alone (WORLD_SIZE is not set)", tasks),
		Hint:    `use "srun ddpbatch run --", or eval "$(ddpbatch env)" in each task first`,
	}
}

// JoinWorld connects to the other ranks by env://. If WORLD_SIZE is 1 or not set, it returns a group of only this process.
func JoinWorld(ctx context.Context, lookup func(string) (string, bool), cfg mpi.Config, log *slog.Logger) (*mpi.Comm, error) {
	size, ok := lookup("WORLD_SIZE")
	if !ok || size == "1" {
		return mpi.Self(), nil
	}
	comm, err := mpi.InitEnv(ctx, lookup, cfg, log)
	if err != nil {
		return nil, fmt.Errorf("meet the other ranks: %w", err)
	}
	return comm, nil
}
