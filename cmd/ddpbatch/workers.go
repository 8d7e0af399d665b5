package main

import (
	"cmp"
	"slices"
	"strconv"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch"
)

// meetingPorts is how many ports agents try to meet on.
const meetingPorts = 8

// workers is what an agent starts, from the command line or from the run directory that the batch
// script names.
type workers struct {
	command []string
	builtin bool
	dir     string
	env     map[string]string
	nproc   launch.Nproc
	launch  launch.Config
	run     *rundir.Dir // nil: none
	attempt int
	version string
}

func workersOf(e *env, o runOptions) (*workers, error) {
	w := &workers{command: o.command, dir: e.Dir, launch: launch.DefaultConfig(), version: version}
	w.nproc = w.launch.NprocPerNode
	path := e.get("DDPBATCH_RUN_DIR")
	switch {
	case len(o.command) > 0 && o.command[0] == "":
		return nil, usagef("the command to run is empty")
	case len(o.command) == 0 && path == "":
		return nil, &usageError{message: "run needs a command", hint: "write it after --: ddpbatch run -- python3 train.py"}
	case len(o.command) == 0:
		if err := w.fromRun(e, path); err != nil {
			return nil, err
		}
	}
	if o.nproc != "" {
		n, err := launch.ParseNproc(o.nproc)
		if err != nil {
			return nil, usagef("--nproc-per-node: %v", err)
		}
		w.nproc = n
	}
	return w, nil
}

// fromRun takes everything from the run directory's spec.
func (w *workers) fromRun(e *env, path string) error {
	run, err := rundir.Open(path)
	if err != nil {
		return err
	}
	job, err := jobOf(run)
	if err != nil {
		return err
	}
	if w.attempt, err = strconv.Atoi(e.get("DDPBATCH_ATTEMPT")); err != nil || w.attempt < 1 {
		return usagef("DDPBATCH_RUN_DIR is set, and DDPBATCH_ATTEMPT is %q: the batch script sets both", e.get("DDPBATCH_ATTEMPT"))
	}
	w.run, w.version = run, run.Spec().SHA256
	w.dir, w.env, w.launch, w.nproc = job.WorkDir, job.Env, job.Launch, job.Launch.NprocPerNode
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
		Attempt: w.attempt, Version: w.version, MaxRestarts: w.launch.MaxRestarts,
		Command: w.command, Env: e.Environ, Dir: w.dir, Builtin: w.builtin, RunDir: w.run, Grace: w.launch.Grace,
		Stdout: unchecked(e.Out), Stderr: e.Err, Log: e.log(),
	}
	cfg.Host = e.Hostname
	for _, name := range sortedKeys(w.env) {
		cfg.Env = append(cfg.Env[:len(cfg.Env):len(cfg.Env)], name+"="+w.env[name])
	}
	return cfg
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// secretOf is what the agents of a run prove to each other. A single one proves it to its workers alone, and takes a new one.
func secretOf(e *env, cfg *launch.AgentConfig) (auth.Secret, error) {
	if e.get("DDPBATCH_SECRET") == "" && cfg.Count == 1 {
		return auth.NewSecret()
	}
	return runSecret(e, cfg.RunID)
}

// runSecret is what the processes of a run share: the batch script's secret, or, where there is none, one made from a key file
// that all nodes see and from what tells this run from others.
func runSecret(e *env, runID string) (auth.Secret, error) {
	if text := e.get("DDPBATCH_SECRET"); text != "" {
		secret, err := auth.ParseSecret(text)
		if err != nil {
			return auth.Secret{}, usagef("read DDPBATCH_SECRET: %v", err)
		}
		return secret, nil
	}
	path, err := auth.KeyPath(e.lookup)
	if err != nil {
		return auth.Secret{}, usagef("%v", err)
	}
	return auth.RunSecret(path, runID)
}

// runIDOf is the id of the run that a process belongs to, as mpi.InitEnv reads it.
func runIDOf(e *env) string {
	return cmp.Or(e.get("DDPBATCH_RUN_ID"), e.get("TORCHELASTIC_RUN_ID"), "none")
}
