package jobfile

import (
	"slices"
	"strconv"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// Schema is the version of job.toml that this package reads.
const Schema = 1

// Job is a whole job.toml: checked, defaults filled in. It goes into spec.json and comes back from
// it equal; durations are whole nanoseconds there.
type Job struct {
	Schema int    `json:"schema"`
	Name   string `json:"name"`
	// WorkDir is where ranks run, and RunDir the parent of the run directories. Both are absolute.
	WorkDir    string            `json:"workdir"`
	RunDir     string            `json:"run_dir"`
	Slurm      slurm.Options     `json:"slurm"`
	Setup      slurm.Setup       `json:"setup"`
	Env        map[string]string `json:"env,omitempty"` // [setup] env: for the workers, any bytes but NUL
	Launch     launch.Config     `json:"launch"`
	Requeue    recovery.Policy   `json:"requeue"` // less MaxRestarts: see Policy
	MPI        mpi.Config        `json:"mpi"`
	Train      trainer.Config    `json:"train"`
	Checkpoint checkpoint.Config `json:"checkpoint"`
}

// defaults is the job of an empty file.
func defaults() *Job {
	return &Job{
		Schema:     Schema,
		WorkDir:    ".",
		RunDir:     "runs",
		Launch:     launch.DefaultConfig(),
		Requeue:    recovery.DefaultPolicy(),
		MPI:        mpi.DefaultConfig(),
		Train:      trainer.DefaultConfig(),
		Checkpoint: checkpoint.DefaultConfig(),
	}
}

// Builtin tells whether the ranks run the built-in trainer, and not a command of the user's.
func (j *Job) Builtin() bool { return len(j.Launch.Command) == 0 }

// Policy is what follows an attempt that is not done: [requeue], and launch.max_restarts.
func (j *Job) Policy() recovery.Policy {
	p := j.Requeue
	p.MaxRestarts, p.Limit = j.Launch.MaxRestarts, j.timeLimit()
	return p
}

// Nodes is how many nodes the job asks for: slurm.nodes, or 1.
func (j *Job) Nodes() int { return max(1, j.option("nodes")) }

// CPUsPerRank is slurm.cpus_per_task, or 0 where the job does not say.
func (j *Job) CPUsPerRank() int { return j.option("cpus-per-task") }

// option is the whole number that an sbatch option was given; 0 where it was not.
func (j *Job) option(name string) int {
	value, _ := j.Slurm.Get(name)
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return n
}

// MaxNproc is the largest number of ranks that any node runs; 0 where only the nodes can tell.
func (j *Job) MaxNproc() int {
	if len(j.Launch.NprocPerNode.Counts) == 0 {
		return 0
	}
	return slices.Max(j.Launch.NprocPerNode.Counts)
}

// timeLimit is slurm.time; 0: none, or not said.
func (j *Job) timeLimit() time.Duration {
	text, _ := j.Slurm.Get("time")
	limit, err := slurm.ParseTime(text)
	if err != nil || limit == slurm.Unlimited {
		return 0
	}
	return limit
}
