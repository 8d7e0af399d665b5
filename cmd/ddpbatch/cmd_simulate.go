package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
	"ddpbatch/templates"
)

func newSimulateCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "run a whole job on this machine, as pretend nodes; no Slurm needed",
		ArgsUsage: "[JOB] | -- COMMAND...",
		Description: example("ddpbatch simulate", "ddpbatch simulate job.toml --nodes 2 --nproc-per-node 2",
			"ddpbatch simulate --nodes 2 --nproc-per-node 2 -- python3 train.py"),
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Usage: "pretend `N` nodes (default: the job's)"},
			&cli.StringFlag{Name: "nproc-per-node", Aliases: []string{"nproc_per_node"}, Usage: "`M` ranks on each (default: the job's)"},
			exportFlag(),
			setFlag(),
		},
		Action: func(c *cli.Context) error {
			words, command, dashed := splitDash(c.Args().Slice())
			sets := withExport(e, c, c.StringSlice("set"))
			if c.IsSet("nodes") {
				sets = append(sets, "slurm.nodes="+strconv.Itoa(c.Int("nodes")))
			}
			if c.IsSet("nproc-per-node") {
				sets = append(sets, "launch.nproc_per_node="+c.String("nproc-per-node"))
			}
			switch {
			case dashed && (len(words) > 0 || len(command) == 0):
				return usagef("simulate takes a job file, or a command after --, not both")
			case len(words) > 1:
				return usagef("simulate takes one job file, not %d", len(words))
			case dashed:
				text, err := commandJob(command)
				if err != nil {
					return err
				}
				return runSimulate(c.Context, e, filepath.Join(e.Dir, "job.toml"), text, sets)
			case len(words) == 0:
				starter, _ := templates.Find("simulate")
				return runSimulate(c.Context, e, filepath.Join(e.Dir, "job.toml"), []byte(starter.Text), sets)
			}
			path := e.abs(words[0])
			text, err := readJob(path)
			if err != nil {
				return err
			}
			return runSimulate(c.Context, e, path, text, sets)
		},
	}
}

// notInName matches what a job's name may not hold.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// commandJob writes the job file of `simulate -- COMMAND`: two nodes of two ranks, as the starter
// job has.
func commandJob(command []string) ([]byte, error) {
	if command[0] == "" {
		return nil, usagef("the command after -- is empty")
	}
	name := strings.TrimLeft(notInName.ReplaceAllString(filepath.Base(command[0]), "-"), ".-")
	if name == "" {
		name = "command"
	}
	quoted := make([]string, len(command))
	for i, word := range command {
		if !utf8.ValidString(word) {
			return nil, usagef("word %d after -- is not UTF-8 text, which a job file must be; ddpbatch run --standalone takes any bytes", i+1)
		}
		// JSON's escapes are TOML's, too, but JSON has none for DEL
		text, _ := json.Marshal(word)
		quoted[i] = strings.ReplaceAll(string(text), "\x7f", `\u007f`)
	}
	return fmt.Appendf(nil, "schema = 1\nname = %q\n\n[slurm]\nnodes = 2\n\n[launch]\nnproc_per_node = 2\ncommand = [%s]\n",
		name[:min(len(name), 64)], strings.Join(quoted, ", ")), nil
}

func runSimulate(ctx context.Context, e *env, path string, text []byte, sets []string) error {
	job, warnings, err := jobfile.Parse(filepath.Base(path), filepath.Dir(path), text, sets)
	warn(e, warnings)
	if err != nil {
		return err
	}
	if err := missingData(job); err != nil {
		return err
	}
	if job.Nodes() > sim.MaxNodes {
		return usagef("simulate pretends up to %d nodes, not %d", sim.MaxNodes, job.Nodes())
	}
	run, err := newRun(e, "simulate", job, path, text, sets)
	if err != nil {
		return err
	}
	return simulateRun(ctx, e, run, job)
}

// simulateRun runs one attempt of a run as pretend nodes, as its batch script would on real ones.
func simulateRun(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job) error {
	if len(job.Setup.Modules)+len(job.Setup.Script) > 0 || job.Setup.Venv != "" || job.Setup.Conda != "" {
		e.log().Warn("[setup] belongs to the cluster's batch script; simulate runs in this shell's environment")
	}
	deadline, err := deadlineOf(e)
	if err != nil {
		return err
	}
	pid := os.Getpid()
	id := strconv.Itoa(pid)
	if err := run.SetJobID(id); err != nil {
		return err
	}
	a, err := beginAttempt(e, run, id)
	if err != nil {
		return err
	}
	defer bearClosedPipes()()
	out, err := openConsole(e, run, run.SlurmLogPath(id))
	if err != nil {
		return err
	}
	kept, _ := slurm.Scrub(e.Environ)
	code, err := sim.Step{
		Allocation: sim.Allocation{
			JobID: pid, JobName: job.Name, Nodes: job.Nodes(), CPUs: cpusPerNode(job),
			Restarts: a.number - 1, WorkDir: job.WorkDir,
		},
		Command: []string{run.Binary(), "run"},
		Environ: slices.Concat(kept, a.environ(), deadlineEnviron(deadline)),
		Output:  out.stream,
	}.Run(ctx)
	lost := out.close()
	if err != nil {
		return errors.Join(err, lost)
	}
	v, err := a.end(e, code)
	err = errors.Join(err, lost)
	if v.Exit == 0 {
		return err
	}
	if v.Cause == causeUnknown { // or else agent 0 has said it
		fmt.Fprintf(e.Err, "ddpbatch: %s\n", v.Message)
	}
	var stopped launch.SignalError
	if errors.As(context.Cause(ctx), &stopped) {
		fmt.Fprintf(e.Err, "resume: %s\n", resumeCommand(run, ""))
		return &codeError{code: 128 + int(stopped.Sig), err: err}
	}
	fmt.Fprintf(e.Err, "logs: %s\n", e.short(run.LogsPath(a.number)))
	return &codeError{code: v.Exit, err: err}
}

func cpusPerNode(job *jobfile.Job) int {
	return max(1, job.MaxNproc()) * max(1, job.CPUsPerRank())
}

// resumeCommand is what a person types to go on with a run, wherever they stand.
func resumeCommand(run *rundir.Dir, set string) string {
	words := []string{run.Binary(), "resume", run.Path()}
	if set != "" {
		words = append(words, "--set", set)
	}
	return slurm.ShellJoin(words)
}
