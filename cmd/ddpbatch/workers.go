package main

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
)

// workers is what an agent starts, from the command line or from the run directory that the batch
// script names.
type workers struct {
	command []string
	builtin bool
	dir     string
	env     map[string]string
	nproc   launch.Nproc
	launch  launch.Config
	policy  recovery.Policy
	run     *rundir.Dir // nil: none
	attempt int
	version string
}

func workersOf(e *env, o *torchrun.Options) (w *workers, err error) {
	w = &workers{dir: e.Dir, launch: launch.DefaultConfig(), version: version}
	w.launch.Hang = 0 // nobody asked for it, and an unknown command may sleep for as long as it likes
	if w.command, err = o.Argv(e.get("PYTHON_EXEC")); err != nil {
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

// fromRun takes everything from the run directory's spec.
func (w *workers) fromRun(e *env, path string) error {
	run, err := rundir.OpenOwn(path)
	if err != nil {
		return err
	}
	job, err := jobOf(run)
	if err != nil {
		return err
	}
	if w.attempt, err = strconv.Atoi(e.get("DDPBATCH_ATTEMPT")); err != nil || w.attempt < 1 {
		return usage.Errorf("DDPBATCH_RUN_DIR is set, and DDPBATCH_ATTEMPT is %q: the batch script sets both", e.get("DDPBATCH_ATTEMPT"))
	}
	w.run, w.version = run, run.Spec().SHA256
	w.dir, w.env, w.launch, w.policy = job.WorkDir, job.Env, job.Launch, job.Policy()
	w.command, w.builtin = commandOf(run, job), job.Builtin()
	return nil
}

func commandOf(run *rundir.Dir, job *jobfile.Job) []string {
	if job.Builtin() {
		return []string{run.Binary(), "train"}
	}
	return job.Launch.Command
}

// config is the agent's, less its place among the others.
func (w *workers) config(e *env) launch.AgentConfig {
	cfg := launch.AgentConfig{
		Attempt: w.attempt, Version: w.version, MaxRestarts: w.launch.MaxRestarts, Policy: w.policy, MinCount: w.launch.MinNodes,
		Command: w.command, Env: withoutPMI(e.Environ), Dir: w.dir, Builtin: w.builtin, RunDir: w.run,
		Grace: w.launch.Grace, TermGrace: attempt.TermGrace(e.lookup), HangAfter: w.launch.Hang, GPUs: w.launch.GPUs, NUMA: w.launch.NUMA, Sweep: true,
		Stdout: unchecked(e.Out), Stderr: e.Err, Log: e.log(),
	}
	cfg.Host = e.Hostname
	for _, name := range sortedKeys(w.env) {
		cfg.Env = append(cfg.Env[:len(cfg.Env):len(cfg.Env)], name+"="+w.env[name])
	}
	return cfg
}

// warnSignal is the signal that the batch script warns agents by, and agents their workers.
func (w *workers) warnSignal() (syscall.Signal, error) {
	sig := unix.SignalNum("SIG" + w.launch.WarnSignal)
	if sig == 0 {
		return 0, usage.Errorf("launch.warn_signal is %q, which is no signal here", w.launch.WarnSignal)
	}
	return sig, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// withoutPMI is an environment without what Slurm says of a connection that only the agent has.
func withoutPMI(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "PMI_") {
			kept = append(kept, entry)
		}
	}
	return kept
}
