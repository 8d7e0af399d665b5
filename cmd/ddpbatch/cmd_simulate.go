package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/resume"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
	"ddpbatch/templates"
)

func newSimulateCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "run a whole job on pretend nodes on this machine, without Slurm",
		ArgsUsage: "[JOB] | -- COMMAND...",
		Description: example("ddpbatch simulate", "ddpbatch simulate job.toml --nodes 2 --nproc-per-node 2",
			"ddpbatch simulate --nodes 2 --nproc-per-node 2 -- python3 train.py"),
		Flags: append([]cli.Flag{exportFlag(), setFlag(), jsonFlag()}, pretendFlags()...),
		Action: func(c *cli.Context) error {
			return e.replying(c.Bool("json"), func(e *env) error {
				p, err := pretendOf(c, tryHelp(c), false)
				if err != nil {
					return err
				}
				starter, _ := templates.Find("simulate") // the default job
				source, err := jobSource(e, c, "simulate", []byte(starter.Text))
				if err != nil {
					return err
				}
				sets, err := withExport(e, c, source.sets)
				if err != nil {
					return err
				}
				source.sets = slices.Concat(sets, p.Sets())
				run, job, err := newSimulation(c.Context, e, source, p)
				if err != nil {
					return err
				}
				return simulateRun(c.Context, e, run, job, p, nil)
			})
		},
	}
}

// jobText is the text of a job file, or one made from a command line, before it is parsed.
type jobText struct {
	path string // of the file, or where it would be
	text []byte
	sets []string
}

// jobSource returns the job that a command was given: a file, the words after --, or else the text otherwise, if it is not nil.
func jobSource(e *env, c *cli.Context, verb string, otherwise []byte) (jobText, error) {
	words, command, dashed := splitDash(c.Args().Slice())
	s := jobText{path: filepath.Join(e.Dir, "job.toml"), text: otherwise, sets: c.StringSlice("set")}
	var err error
	switch {
	case dashed && len(command) == 0:
		return s, usage.Errorf("no command after --")
	case dashed && len(words) > 0:
		return s, usage.Errorf("%s takes a job file, or a command after --, not both", verb)
	case len(words) > 1:
		return s, usage.Errorf("%s takes one job file, not %d", verb, len(words))
	case dashed:
		s.text, err = commandJob(command)
	case len(words) == 1:
		s.path = e.abs(words[0])
		s.text, err = readJob(c.Context, s.path)
	case otherwise == nil:
		err = &usage.Error{Message: verb + " needs a job file, or a command after --", Hint: tryHelp(c)}
	}
	if err == nil {
		err = checkSets(e, s.sets)
	}
	return s, err
}

// notInName matches characters that a job's name must not contain.
var notInName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) })

// commandJob returns the job file for `simulate -- COMMAND`: two nodes with two ranks each, as in the starter job.
func commandJob(command []string) ([]byte, error) {
	if command[0] == "" {
		return nil, usage.Errorf("the command after -- is empty")
	}
	name := strings.TrimLeft(notInName().ReplaceAllString(filepath.Base(command[0]), "-"), ".-")
	if name == "" {
		name = "command"
	}
	quoted := make([]string, len(command))
	for i, word := range command {
		if !utf8.ValidString(word) {
			return nil, usage.Errorf("word %d after -- is not UTF-8 text, which a job file must be; ddpbatch run "+
				"--standalone takes any bytes", i+1)
		}
		// JSON's escapes are also TOML's, but JSON does not escape DEL
		text, _ := json.Marshal(word)
		quoted[i] = strings.ReplaceAll(string(text), "\x7f", `\u007f`)
	}
	return fmt.Appendf(nil, "schema = 1\nname = %q\n\n[slurm]\nnodes = 2\n\n[launch]\nnproc_per_node = 2\ncommand = [%s]\n",
		name[:min(len(name), 64)], strings.Join(quoted, ", ")), nil
}

// newSimulation creates the run directory of a job to simulate.
func newSimulation(ctx context.Context, e *env, source jobText, p simulate.Pretend) (*rundir.Dir, *jobfile.Job, error) {
	job, warnings, err := parsePretend(e, source)
	warn(e, warnings)
	if err != nil {
		return nil, nil, err
	}
	if err := job.CheckFiles(); err != nil {
		return nil, nil, err
	}
	if err := p.Check(job, false); err != nil {
		return nil, nil, err
	}
	code, warnings, err := selectCode(ctx, e, job, source.path)
	warn(e, warnings)
	if err != nil {
		return nil, nil, err
	}
	run, err := newRun(ctx, e, "simulate", job, source.path, source.text, source.sets, code)
	if err != nil {
		return nil, nil, err
	}
	if code != nil {
		note(e, "code: %s", code.record.Summary())
	}
	spec := run.Spec()
	spec.Pretend = p.Words()
	return run, job, run.WriteSpec(spec)
}

// simulateRun runs a job, or elements of an array, on this machine: those in only, or all.
func simulateRun(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job, p simulate.Pretend, only []int) error {
	defer tolerateClosedPipes()()
	return e.inProcess(run, job, func(e *env) error { return simulate.Run(ctx, e.simulateEnv(), run, job, p, only) })
}

// simulateEnv returns what package simulate needs to know of this process.
func (e *env) simulateEnv() simulate.Env {
	return simulate.Env{
		Env: e.attemptEnv(), Environ: e.Environ, Out: e.Out, Terminal: e.Terminal, Short: e.short, ExitCode: exitCode,
	}
}

// pretendFlags returns the flags of simulate and rehearse.
func pretendFlags() []cli.Flag {
	d := simulate.DefaultPretend()
	return []cli.Flag{
		&cli.StringFlag{Name: "nodes", Usage: "pretend `N` nodes (default: the job's)"},
		&cli.StringFlag{Name: "nproc-per-node", Aliases: []string{"nproc_per_node"},
			Usage: "`M` ranks on each node, or a list with one number per node, such as 2,2,1 (default: the job's)"},
		&cli.StringFlag{Name: "node-names", Usage: "names of the job's nodes, as a `HOSTLIST`"},
		&cli.StringFlag{Name: "nodelist", Usage: "run only on these of them, as with srun -w: a `HOSTLIST`"},
		&cli.StringFlag{Name: "tasks-per-node", Usage: `have srun start the ranks (launch.mode = "task"), with the numbers per node of a ` +
			"`LIST`, such as 2,2,1"},
		&cli.StringFlag{Name: "distribution", Usage: `how ranks are distributed if launch.mode is "task": block or cyclic`},
		&cli.StringFlag{Name: "het-nodes",
			Usage: "pretend a heterogeneous job (sbatch's hetjob) and one srun over it: how many nodes each component has, such as `1,2`"},
		&cli.StringFlag{Name: "slurm", Usage: "the release of Slurm to simulate: `22.05` or 25.11", Value: string(d.Release)},
		&cli.StringFlag{Name: "array", Usage: "run as an array, as with sbatch's --array: `0-3%2`"},
		// An empty text removes an earlier one (resume). The library's flags for times do not accept it.
		&cli.StringFlag{Name: "time", Usage: "the pretend time limit; the warning comes requeue.lead before it (default: none)"},
		&cli.StringFlag{Name: "kill-wait", Usage: "the time between TERM and KILL (slurm.conf, KillWait)",
			DefaultText: d.KillWait.String()},
		&cli.StringFlag{Name: "grace-time", Usage: "the time between a preemption's first TERM and its last (slurm.conf, GraceTime)",
			DefaultText: d.GraceTime.String()},
		&cli.StringSliceFlag{Name: "fault",
			Usage: "inject a fault, such as `kill:rank=3@step=20` (may be repeated); kinds: " + sim.Kinds},
	}
}

// pretendOf returns what the flags say. hint is added to the error for an invalid value. With emptyTimes a time may be empty, by which a
// resume removes one that the run has.
func pretendOf(c *cli.Context, hint string, emptyTimes bool) (simulate.Pretend, error) {
	d := simulate.DefaultPretend()
	p := simulate.Pretend{
		Nodes: c.String("nodes"), Nproc: c.String("nproc-per-node"), Names: c.String("node-names"), Nodelist: c.String("nodelist"),
		Distribution: sim.Layout(c.String("distribution")), Array: c.String("array"),
		Release: sim.Release(c.String("slurm")), KillWait: d.KillWait, GraceTime: d.GraceTime,
	}
	for _, flag := range []struct {
		name string
		to   *time.Duration
	}{{"time", &p.Time}, {"kill-wait", &p.KillWait}, {"grace-time", &p.GraceTime}} {
		text := c.String(flag.name)
		if text == "" && (emptyTimes || !c.IsSet(flag.name)) {
			continue
		}
		var err error
		if *flag.to, err = time.ParseDuration(text); err != nil {
			message := fmt.Sprintf("%q for --%s is not a time with a unit, such as 90s or 10m", text, flag.name)
			return p, &usage.Error{Message: message, Hint: hint}
		}
	}
	nodes, err := strconv.Atoi(p.Nodes)
	var tasksOK, hetOK bool
	p.Tasks, tasksOK = simulate.ParseCounts(c.String("tasks-per-node"))
	p.HetNodes, hetOK = simulate.ParseCounts(c.String("het-nodes"))
	switch {
	case !tasksOK:
		return p, usage.Errorf("--tasks-per-node is %q; write one number from 1 for each node, such as 2,2,1", c.String("tasks-per-node"))
	case !hetOK:
		return p, usage.Errorf("--het-nodes is %q; write how many nodes each component has, each a number from 1 to %d, such as 1,2",
			c.String("het-nodes"), sim.MaxNodes)
	case p.Nodes != "" && (err != nil || nodes < 1 || nodes > sim.MaxNodes):
		return p, usage.Errorf("--nodes is %q; it must be a whole number from 1 to %d", p.Nodes, sim.MaxNodes)
	case p.Tasks != nil && p.Nproc != "":
		return p, usage.Errorf("--tasks-per-node and --nproc-per-node both set the number of ranks per node; leave one of them out")
	case p.Distribution != "" && p.Distribution != sim.Block && p.Distribution != sim.Cyclic:
		return p, usage.Errorf("--distribution is %q; it must be block or cyclic", p.Distribution)
	case p.Release == "":
		p.Release = d.Release
	case !slices.Contains(sim.Releases, p.Release):
		return p, usage.Errorf("--slurm is %q; it must be 22.05 or 25.11", p.Release)
	}
	switch {
	case p.Time < 0 || c.String("time") != "" && p.Time == 0:
		return p, usage.Errorf("--time is %v; write a time such as 90s or 10m", p.Time)
	case p.KillWait <= 0 || p.GraceTime <= 0:
		return p, usage.Errorf("--kill-wait and --grace-time must be longer than 0")
	}
	for name, key := range map[string]string{"nodes": "slurm.nodes", "nproc-per-node": "launch.nproc_per_node", "array": "slurm.array"} {
		if c.IsSet(name) && c.String(name) == "" {
			p.Emptied = append(p.Emptied, key)
		}
	}
	for _, text := range c.StringSlice("fault") {
		f, err := sim.ParseFault(text)
		if err != nil {
			return p, usage.Errorf("--fault: %v", err)
		}
		p.Faults = append(p.Faults, f)
	}
	return p, p.CountNodes()
}

// resumeSimulated continues a simulated run with its earlier shape. The words are further flags of simulate, and take precedence.
func resumeSimulated(ctx context.Context, e *env, r *resume.Resumer, run *rundir.Dir) error {
	before, sets, words := run.Spec(), r.Sets, r.Words
	p, err := readPretend(slices.Concat(before.Pretend, words))
	if err != nil {
		if _, alone := readPretend(words); alone != nil {
			return err // the words are invalid by themselves
		}
		return withShape(err, before.Pretend)
	}
	was, err := readPretend(before.Pretend)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		sets = slices.Concat(p.Sets(), sets)
	}
	job, err := r.SimulatedJob(ctx, run, p.Keep(before.Sets, was), sets, p.Words())
	if err != nil {
		return err
	}
	_, element := run.Index()
	if job.CodeDir != "" {
		note(e, "code: the copy made before, %s", e.short(job.RanksDir(run.Whole().Path())))
	}
	if err := p.Check(job, element); err != nil {
		return errors.Join(withShape(err, before.Pretend), run.WriteSpec(before))
	}
	return simulateRun(ctx, e, run, job, p, r.Left(job))
}

// withShape adds to an error about simulate's flags which of them the run has from before, if any.
func withShape(err error, before []string) error {
	if len(before) == 0 {
		return err
	}
	return &usage.Error{
		Message: err.Error(),
		Hint: fmt.Sprintf("the run was simulated with %s; other flags of simulate may follow --, and a flag with an empty value "+
			"removes the earlier one, "+
			"so that the job file decides again: ddpbatch resume RUN -- --node-names= --nodes 2", slurm.ShellJoin(before)),
	}
}

// readPretend parses flags of simulate.
func readPretend(words []string) (p simulate.Pretend, err error) {
	const hint = "the words after -- must be flags of simulate"
	app := &cli.App{
		Flags: pretendFlags(), HideHelp: true, HideVersion: true, Writer: io.Discard, ErrWriter: io.Discard,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return &usage.Error{Message: flagMessage(pretendFlags(), err), Hint: hint}
		},
		Action: func(c *cli.Context) (err error) {
			if c.Args().Present() {
				return usage.Errorf("%q is not a flag of simulate", c.Args().First())
			}
			p, err = pretendOf(c, hint, true)
			return err
		},
	}
	return p, app.Run(slices.Concat([]string{"simulate"}, words))
}
