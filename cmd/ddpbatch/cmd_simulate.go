package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/templates"
)

func newSimulateCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "run a whole job on this machine, as pretend nodes; no Slurm needed",
		ArgsUsage: "[JOB] | -- COMMAND...",
		Description: example("ddpbatch simulate", "ddpbatch simulate job.toml --nodes 2 --nproc-per-node 2",
			"ddpbatch simulate --nodes 2 --nproc-per-node 2 -- python3 train.py"),
		Flags: append([]cli.Flag{exportFlag(), setFlag()}, pretendFlags()...),
		Action: func(c *cli.Context) error {
			p, err := pretendOf(c)
			if err != nil {
				return err
			}
			source, err := jobSource(e, c, "simulate", []byte(starterJob()))
			if err != nil {
				return err
			}
			source.sets = slices.Concat(withExport(e, c, source.sets), p.sets())
			return runSimulate(c.Context, e, source, p)
		},
	}
}

// starterJob is what simulate runs where nobody says.
func starterJob() string {
	starter, _ := templates.Find("simulate")
	return starter.Text
}

// jobText is a job file, or one made of a command line, before it is parsed.
type jobText struct {
	path string // of the file, or where one would be
	text []byte
	sets []string
}

// jobSource is the job that a command was given: a file, or the words after --, or else the text given, where there is any.
func jobSource(e *env, c *cli.Context, verb string, otherwise []byte) (jobText, error) {
	words, command, dashed := splitDash(c.Args().Slice())
	s := jobText{path: filepath.Join(e.Dir, "job.toml"), text: otherwise, sets: c.StringSlice("set")}
	var err error
	switch {
	case dashed && len(command) == 0:
		return s, usagef("there is no command after --")
	case dashed && len(words) > 0:
		return s, usagef("%s takes a job file, or a command after --, not both", verb)
	case len(words) > 1:
		return s, usagef("%s takes one job file, not %d", verb, len(words))
	case dashed:
		s.text, err = commandJob(command)
	case len(words) == 1:
		s.path = e.abs(words[0])
		s.text, err = readJob(c.Context, s.path)
	case otherwise == nil:
		err = &usageError{message: verb + " needs a job file, or a command after --", hint: tryHelp(c)}
	}
	return s, err
}

// notInName matches what a job's name may not hold.
var notInName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) })

// commandJob writes the job file of `simulate -- COMMAND`: two nodes of two ranks, as the starter
// job has.
func commandJob(command []string) ([]byte, error) {
	if command[0] == "" {
		return nil, usagef("the command after -- is empty")
	}
	name := strings.TrimLeft(notInName().ReplaceAllString(filepath.Base(command[0]), "-"), ".-")
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

func runSimulate(ctx context.Context, e *env, source jobText, p pretend) error {
	run, job, err := newSimulation(e, source, p)
	if err != nil {
		return err
	}
	return simulateRun(ctx, e, run, job, p)
}

// newSimulation makes the run directory of a job that is to be simulated.
func newSimulation(e *env, source jobText, p pretend) (*rundir.Dir, *jobfile.Job, error) {
	job, warnings, err := jobfile.Parse(filepath.Base(source.path), filepath.Dir(source.path), source.text, source.sets)
	warn(e, warnings)
	if err != nil {
		return nil, nil, err
	}
	if err := missingData(job); err != nil {
		return nil, nil, err
	}
	if err := p.check(job); err != nil {
		return nil, nil, err
	}
	run, err := newRun(e, "simulate", job, source.path, source.text, source.sets)
	if err != nil {
		return nil, nil, err
	}
	spec := run.Spec()
	spec.Pretend = p.words()
	return run, job, run.WriteSpec(spec)
}

func cpusPerNode(job *jobfile.Job) int {
	return max(1, job.MaxNproc()) * max(1, job.CPUsPerRank())
}
