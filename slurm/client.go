package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Client talks to a Slurm cluster through its commands: sbatch, squeue, sacct, scontrol, scancel and
// sinfo, from 22.05 on. They are Slurm's one interface that every site has; their
// text is read in the forms that have stayed the same, and never as tables for people.
//
// The zero Client would run the commands with an empty environment. A Client may be used by several
// goroutines at once, if its Run may.
type Client struct {
	// Environ is the environment of the commands, "NAME=value" each, and of the jobs they
	// submit: normally what [Scrub] keeps of the process's own. The commands are looked up
	// in its PATH.
	Environ []string

	// Run runs one command to its end; nil stands for [Exec]. It is there for tests, and for
	// clusters that are reached through another program.
	Run func(ctx context.Context, c Command) (Output, error)
}

// Command is one call of one of Slurm's commands.
type Command struct {
	Name    string // "squeue"
	Args    []string
	Environ []string
}

// Output is what a command that ran printed, and its exit code, whatever that was.
type Output struct {
	Stdout []byte
	Stderr []byte
	Code   int
}

// clientPrefixes begin the variables by which a user sets options of the commands that ask
// (squeue(1), "ENVIRONMENT VARIABLES", and the like). They would filter jobs out or change the format.
var clientPrefixes = []string{"SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_", "SINFO_", "SLURM_TIME_FORMAT=", "SLURM_JSON=", "SLURM_YAML="}

// run runs one command. err is nil if it ran, and exited with any code at all.
func (c *Client) run(ctx context.Context, name string, args ...string) (Output, error) {
	run := c.Run
	if run == nil {
		run = Exec
	}
	out, err := run(ctx, Command{Name: name, Args: args, Environ: c.environ(name)})
	if err != nil {
		return Output{}, fmt.Errorf("run %s: %w", name, err)
	}
	return out, nil
}

// environ is Environ less what would change the answers. sbatch has no such variables but
// SBATCH_*, which are the caller's to keep or to scrub.
func (c *Client) environ(name string) []string {
	if name == "sbatch" {
		return c.Environ
	}
	return slices.DeleteFunc(slices.Clone(c.Environ), func(variable string) bool {
		return slices.ContainsFunc(clientPrefixes, func(prefix string) bool {
			return strings.HasPrefix(variable, prefix)
		})
	})
}

// absentElement is what scontrol says, in its standard output, of an element that the controller does
// not have, of an array that it does have.
var absentElement = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|; )Job [0-9_+]+ not found($|; )`) })

// failure is the error that a command's output stands for; nil where its exit code is 0.
func failure(name string, out Output) error {
	if out.Code == 0 {
		return nil
	}
	words := slurmWords(out.Stderr)
	if words == "" {
		words = slurmWords(out.Stdout)
	}
	switch {
	case saysUnreachable(words):
		return &UnreachableError{Command: name, Words: words}
	case name != "sbatch" && strings.Contains(words, "Invalid job id specified"),
		name == "scontrol" && absentElement().MatchString(words):
		return ErrUnknownJob
	}
	return &RefusedError{Command: name, Code: out.Code, Words: words}
}

// absent tells whether a command could not be run because the site does not have it.
func absent(err error) bool { return errors.Is(err, ErrNoSlurm) }
