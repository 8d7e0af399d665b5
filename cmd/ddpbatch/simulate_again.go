package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// words are simulate's flags that make the same pretend job once more: its shape and Slurm's times. What befell it is not among them, nor
// what stands in the job already (sets).
func (p pretend) words() []string {
	var words []string
	add := func(name, value string) {
		if value != "" {
			words = append(words, "--"+name+"="+value)
		}
	}
	span := func(name string, d, otherwise time.Duration) {
		if d != otherwise {
			add(name, d.String())
		}
	}
	add("node-names", p.names)
	add("nodelist", p.nodelist)
	add("tasks-per-node", p.tasks)
	add("distribution", string(p.layout))
	add("het-nodes", p.het)
	d := defaultPretend()
	if p.release != d.release {
		add("slurm", string(p.release))
	}
	span("time", p.limit, d.limit)
	span("kill-wait", p.killWait, d.killWait)
	span("grace-time", p.grace, d.grace)
	return words
}

// resumeSimulated goes on with a simulated run, in the shape that it had. Words are further flags of simulate, and count.
func resumeSimulated(ctx context.Context, e *env, run *rundir.Dir, sets, words []string) error {
	before := run.Spec()
	p, err := readPretend(slices.Concat(before.Pretend, words))
	if err != nil {
		if _, alone := readPretend(words); alone != nil {
			return err // words are wrong by themselves, whatever there was before
		}
		return withShape(err, before.Pretend)
	}
	was, err := readPretend(before.Pretend)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		sets = slices.Concat(p.sets(), sets)
	}
	job, err := resumedJob(e, run, p.keep(before.Sets, was), sets, p.words())
	if err != nil {
		return err
	}
	if err := p.check(job); err != nil {
		return errors.Join(withShape(err, before.Pretend), run.WriteSpec(before))
	}
	return simulateRun(ctx, e, run, job, p)
}

// keep leaves out of a run's sets those of the keys that flags were about which have no value any more: there the job file has its say again.
func (p pretend) keep(sets []string, was pretend) []string {
	gone := slices.Clone(p.emptied)
	for _, set := range was.sets() {
		gone = append(gone, setKey(set))
	}
	for _, set := range p.sets() {
		gone = slices.DeleteFunc(gone, func(key string) bool { return key == setKey(set) })
	}
	return slices.DeleteFunc(slices.Clone(sets), func(set string) bool { return slices.Contains(gone, setKey(set)) })
}

// withShape tells with an error of simulate's flags which ones the run has from before, if any.
func withShape(err error, before []string) error {
	if len(before) == 0 {
		return err
	}
	return &usageError{
		message: err.Error(),
		hint: fmt.Sprintf("the run was simulated with %s; other flags of simulate may stand behind --, and one without a value takes that of before away, "+
			"so that the job file has its say again: ddpbatch resume RUN -- --node-names= --nodes 2", slurm.ShellJoin(before)),
	}
}

// readPretend reads flags of simulate.
func readPretend(words []string) (p pretend, err error) {
	app := &cli.App{
		Flags: pretendFlags(), HideHelp: true, HideVersion: true, Writer: io.Discard, ErrWriter: io.Discard,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return usagef("%s; behind -- stand flags of simulate", flagMessage(pretendFlags(), err))
		},
		Action: func(c *cli.Context) (err error) {
			if c.Args().Present() {
				return usagef("%q is no flag of simulate", c.Args().First())
			}
			p, err = pretendOf(c)
			return err
		},
	}
	return p, app.Run(slices.Concat([]string{"simulate"}, withoutEmptyTimes(words)))
}

// withoutEmptyTimes leaves of each time the last word on it, and nothing where that has no value (--time=): the flag package does not take such.
func withoutEmptyTimes(words []string) []string {
	var kept []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		if isTimeFlag(word) && i+1 < len(words) {
			i++
			word += "=" + words[i]
		}
		flag, value, _ := strings.Cut(word, "=")
		if isTimeFlag(flag) {
			name := strings.TrimLeft(flag, "-") + "="
			kept = slices.DeleteFunc(kept, func(before string) bool { return strings.HasPrefix(strings.TrimLeft(before, "-"), name) })
			if word != flag && value == "" {
				continue
			}
		}
		kept = append(kept, word)
	}
	return kept
}

// isTimeFlag tells whether a word is a flag of simulate's that takes a time, without its value.
func isTimeFlag(word string) bool {
	return strings.HasPrefix(word, "-") && slices.ContainsFunc(pretendFlags(), func(f cli.Flag) bool {
		_, isTime := f.(*cli.DurationFlag)
		return isTime && slices.Contains(f.Names(), strings.TrimLeft(word, "-"))
	})
}
