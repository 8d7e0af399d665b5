package jobfile

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/mpi/launch"
)

// launchRows are the keys of [launch], [mpi] and [checkpoint].
func launchRows() []row {
	return []row{
		{key: "launch.nproc_per_node", read: nproc},
		{key: "launch.command", read: list(1, "text without NUL", noNUL, func(j *Job) *[]string { return &j.Launch.Command })},
		{key: "launch.mode", read: oneOf(func(j *Job) *string { return &j.Launch.Mode }, "agent", "task")},
		{key: "launch.max_restarts", read: whole(0, most, func(j *Job) *int { return &j.Launch.MaxRestarts })},
		{key: "launch.min_nodes", read: whole(1, most, func(j *Job) *int { return &j.Launch.MinNodes })},
		{key: "launch.interface", read: line(func(j *Job) *string { return &j.Launch.Interface })},
		{key: "launch.warn_signal", read: oneOf(func(j *Job) *string { return &j.Launch.WarnSignal }, "USR1", "USR2", "HUP", "INT", "TERM")},
		{key: "launch.grace", read: duration(func(j *Job) *time.Duration { return &j.Launch.Grace })},
		{key: "launch.hang", read: durationOrOff(func(j *Job) *time.Duration { return &j.Launch.Hang })},
		{key: "launch.prefix", read: text("one line of text", func(s string) bool { return !strings.ContainsFunc(s, isControl) }, func(j *Job) *string { return &j.Launch.Prefix })},
		{key: "launch.gpus", read: oneOf(func(j *Job) *string { return &j.Launch.GPUs }, "auto", "all", "one")},
		{key: "launch.torch_store", read: truth(func(j *Job) *bool { j.Launch.TorchStore = new(bool); return j.Launch.TorchStore })},
		{key: "launch.numa", read: oneOf(func(j *Job) *string { return &j.Launch.NUMA }, "node", "socket", "exclusive", "core-complex")},

		{key: "mpi.transport", read: oneOf(func(j *Job) *string { return &j.MPI.Transport }, "auto", "shm", "tcp", "ucx")},
		{key: "mpi.algorithm", read: line(func(j *Job) *string { return &j.MPI.Algorithm })},
		{key: "mpi.deterministic", read: truth(func(j *Job) *bool { return &j.MPI.Deterministic })},
		{key: "mpi.encrypt", read: truth(func(j *Job) *bool { return &j.MPI.Encrypt })},
		{key: "mpi.timeout", read: duration(func(j *Job) *time.Duration { return &j.MPI.Timeout })},

		{key: "checkpoint.every_steps", read: whole(0, most, func(j *Job) *int { return &j.Checkpoint.EverySteps })},
		{key: "checkpoint.keep_last", read: whole(2, most, func(j *Job) *int { return &j.Checkpoint.KeepLast })},
		{key: "checkpoint.keep_every", read: whole(1, most, func(j *Job) *int { return &j.Checkpoint.KeepEvery })},
		{key: "checkpoint.keep_within", read: duration(func(j *Job) *time.Duration { return &j.Checkpoint.KeepWithin })},
		{key: "checkpoint.keep_best", read: whole(1, most, func(j *Job) *int { return &j.Checkpoint.KeepBest })},
		{key: "checkpoint.codec", read: oneOf(func(j *Job) *string { return &j.Checkpoint.Codec }, "auto", "none", "zstd")},
		{key: "checkpoint.async", read: truth(func(j *Job) *bool { return &j.Checkpoint.Async })},
		{key: "checkpoint.delta", read: whole(0, most, func(j *Job) *int { return &j.Checkpoint.Delta })},
		{key: "checkpoint.memory", read: size(func(j *Job) *int64 { return &j.Checkpoint.Memory })},
		{key: "checkpoint.local", read: text("an absolute path", isAbsolute, func(j *Job) *string { return &j.Checkpoint.Local })},
		{key: "checkpoint.replicate", read: truth(func(j *Job) *bool { return &j.Checkpoint.Replicate })},
		{key: "checkpoint.at_start", read: truth(func(j *Job) *bool { return &j.Checkpoint.AtStart })},
		{key: "checkpoint.resume", read: oneOf(func(j *Job) *string { return &j.Checkpoint.Resume }, "auto", "never")},
	}
}

// isAbsolute tells whether s is a path that means the same in every folder.
func isAbsolute(s string) bool { return isLine(s) && filepath.IsAbs(s) }

// nproc reads how many ranks each node runs.
func nproc(j *Job, key toml.Key, v any) error {
	to := &j.Launch.NprocPerNode
	switch v := v.(type) {
	case int64:
		if v >= 1 && v <= most {
			*to = launch.Nproc{Counts: []int{int(v)}}
			return nil
		}
	case string:
		if slices.Contains([]string{"gpu", "cpu", "auto"}, v) {
			*to = launch.Nproc{Word: v}
			return nil
		}
	case []any:
		numbers, err := counts(key, v)
		*to = launch.Nproc{Counts: numbers}
		return err
	}
	return mustBe(key, `a whole number of at least 1, a list with one number per node, "gpu", "cpu" or "auto"`, v)
}
