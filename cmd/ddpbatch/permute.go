package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// permute moves a command's flags before its other words, so that `submit job.toml
// --dry-run` is `submit --dry-run job.toml`: the flag package stops at the first word
// that is no flag and would pass the rest over in silence. Words after -- stay as they are. A
// command that runs another one (run, simulate's words after --) must not be
// permuted: run keeps its words as given, as torchrun does.
func permute(app *cli.App, args []string) []string {
	commands := app.Commands
	for i := 1; i < len(args); i++ {
		command := find(commands, args[i])
		if command == nil {
			return args
		}
		if len(command.Subcommands) > 0 {
			commands = command.Subcommands
			continue
		}
		if command.Name == "run" {
			return args
		}
		return append(args[:i+1:i+1], flagsFirst(command.Flags, args[i+1:])...)
	}
	return args
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func flagsFirst(flags []cli.Flag, words []string) []string {
	var front, back []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			// one -- ends the flags for the parser, a second one remains for the command to see
			return append(append(append(front, "--"), back...), words[i:]...)
		}
		if len(w) < 2 || w[0] != '-' {
			back = append(back, w)
			continue
		}
		front = append(front, w)
		if takesValue(flags, w) && i+1 < len(words) {
			i++
			front = append(front, words[i])
		}
	}
	return append(append(front, "--"), back...)
}

// takesValue tells whether the word after flag w is its value.
func takesValue(flags []cli.Flag, w string) bool {
	name := strings.TrimLeft(w, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				_, isBool := f.(*cli.BoolFlag)
				return !isBool
			}
		}
	}
	return false
}

// splitDash cuts words at the first --: what a command takes itself, and what it
// hands on.
func splitDash(words []string) (own, rest []string, dashed bool) {
	for i, w := range words {
		if w == "--" {
			return words[:i], words[i+1:], true
		}
	}
	return words, nil, false
}
