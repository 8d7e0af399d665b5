package main

import (
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/auth"
	"ddpbatch/internal/container"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// workers is what an agent starts, from the command line or from the run directory that the batch script names.
type workers struct {
	command   []string
	builtin   bool
	dir       string
	env       map[string]string
	nproc     launch.Nproc
	launch    launch.Config
	policy    recovery.Policy
	run       *rundir.Dir       // nil if there is none
	container *launch.Container // nil if there is none
	rdma      bool              // the workers' messages must use RDMA
	brief     bool              // the workers check their node and end: it is not checked before, and nobody asks when the job ends
	attempt   int
	version   string
}

func workersOf(e *env, o *torchrun.Options) (w *workers, err error) {
	w = &workers{dir: e.Dir, launch: launch.DefaultConfig(), version: version}
	w.launch.Hang = 0 // not requested; an unknown command may sleep for any time
	if w.command, err = o.Argv(e.get("PYTHON_EXEC")); err != nil {
		return nil, err
	}
	if err := refuseProgram(e, o.PythonScript()); err != nil {
		return nil, err
	}
	path := e.get("DDPBATCH_RUN_DIR")
	switch {
	case w.command == nil && path == "":
		return nil, &usage.Error{Message: "run needs a command", Hint: "write it after --: ddpbatch run -- python3 train.py"}
	case w.command == nil:
		if err := w.fromRun(e, path); err != nil {
			return nil, err
		}
	}
	w.nproc = o.NprocOf(w.launch.NprocPerNode)
	return w, nil
}

// refuseProgram returns an error if Python would be given a program in the place of a script, because -- was left out. Python would only
// find a syntax error in it. With a PYTHON_EXEC that may be right.
func refuseProgram(e *env, script string) error {
	if script == "" || e.get("PYTHON_EXEC") != "" {
		return nil
	}
	f, _, err := vfs.OpenRegular(e.abs(script))
	if err != nil {
		return nil // Python reports it
	}
	defer f.Close()
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil
	}
	program := script
	if !strings.Contains(program, "/") {
		program = "./" + program // a command without a slash is looked up in PATH
	}
	return &usage.Error{Message: fmt.Sprintf("%q is a program, not a Python script", script),
		Hint: "write -- before it: ddpbatch run ... -- " + slurm.ShellJoin([]string{program})}
}

// fromRun takes everything from the run directory's spec.
func (w *workers) fromRun(e *env, path string) error {
	run, err := rundir.OpenOwn(path)
	if err != nil {
		return err
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return err
	}
	if w.attempt, err = strconv.Atoi(e.get("DDPBATCH_ATTEMPT")); err != nil || w.attempt < 1 {
		return usage.Errorf("DDPBATCH_RUN_DIR is set, but DDPBATCH_ATTEMPT is %q: the batch script sets both", e.get("DDPBATCH_ATTEMPT"))
	}
	w.run, w.version = run, run.Spec().SHA256
	w.dir, w.env, w.launch, w.policy = job.RanksDir(run.Whole().Path()), job.WorkerEnv(), job.Launch, job.Policy()
	w.command, w.builtin = job.Launch.Command, job.Builtin()
	w.rdma = w.builtin && job.MPI.Transport == "ucx"
	if w.builtin {
		w.command = []string{run.Binary(), "train"}
	}
	if job.Container.Runtime != "" {
		w.container = containerOf(e, job, run)
	}
	return nil
}

// runName returns the name of a run's directory, with the number if it is an element of an array.
func runName(run *rundir.Dir) string {
	name := filepath.Base(run.Whole().Path())
	if rest, err := filepath.Rel(run.Whole().Path(), run.Path()); err == nil && rest != "." {
		name += "-" + filepath.Base(rest)
	}
	return name
}

// containerOf returns the container of a job's ranks.
func containerOf(e *env, job *jobfile.Job, run *rundir.Dir) *launch.Container {
	if job.Checkpoint.Local != "" {
		_ = os.MkdirAll(job.Checkpoint.Local, 0o700) // ranks outside create it; if it is missing, the agent reports it
	}
	k := &launch.Container{
		Config: job.Container, Run: runName(run), Outer: withoutPMI(e.Environ), Given: slices.Sorted(maps.Keys(job.WorkerEnv())),
	}
	k.Binds, k.Key = containerBinds(e, job, run.Whole().Path())
	return k
}

// containerBinds returns what the ranks of the run in runDir see of their node besides the job's mounts: the run directory, their working
// directory, checkpoint.local, and the user's key file if there is one, whose path it returns as well.
func containerBinds(e *env, job *jobfile.Job, runDir string) (binds []container.Bind, key string) {
	binds = container.Same(runDir, job.RanksDir(runDir), job.Checkpoint.Local)
	if path, err := auth.KeyPath(e.lookup); err == nil {
		if _, err := os.Stat(path); err == nil {
			return append(binds, container.Bind{Source: path, Target: path, ReadOnly: true}), path
		}
	}
	return binds, ""
}

// config returns the agent's configuration, without its place among the others.
func (w *workers) config(e *env) launch.AgentConfig {
	cfg := launch.AgentConfig{
		Identity: launch.Identity{Attempt: w.attempt, Version: w.version, RunDir: w.run},
		Workers: launch.Workers{
			MaxRestarts: w.launch.MaxRestarts, Command: w.command, Env: withoutPMI(e.Environ), Dir: w.dir, Builtin: w.builtin, Sweep: true,
		},
		Policy: w.policy, Log: e.log(),
		Admission:  launch.Admission{MinCount: w.launch.MinNodes},
		Limits:     launch.Limits{Grace: w.launch.Grace, TermGrace: attempt.TermGrace(e.lookup), HangAfter: w.launch.Hang},
		Devices:    launch.Devices{GPUs: w.launch.GPUs, NUMA: w.launch.NUMA},
		NodeChecks: launch.NodeChecks{Checks: w.launch.Check, Machine: !w.brief, RDMA: w.rdma},
		Streams:    launch.Streams{Stdout: unchecked(e.Out), Stderr: e.Err},
	}
	cfg.Host, cfg.Container = e.Hostname, w.container
	for _, name := range slices.Sorted(maps.Keys(w.env)) {
		cfg.Env = append(cfg.Env[:len(cfg.Env):len(cfg.Env)], name+"="+w.env[name])
	}
	if w.container != nil && w.container.Key != "" { // its usual place is below the home directory, which differs inside
		cfg.Env = append(cfg.Env, "DDPBATCH_SECRET_FILE="+w.container.Key)
	}
	return cfg
}

// withoutPMI returns an environment without Slurm's description of a connection that only the agent has.
func withoutPMI(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "PMI_") })
}
