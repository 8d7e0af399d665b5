package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// permute moves a command's flags before its other words, so that `submit job.toml
// --dry-run` is `submit --dry-run job.toml`: the flag package stops at the first word
// that is no flag and would pass the rest over in silence. Words after -- stay as they are, and
// so do all of run's, which stops at its first word that is no flag, as torchrun does.
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
		words := flagsFirst(command.Flags, args[i+1:], handsOn[command.Name])
		return append(args[:i+1:i+1], words...)
	}
	return args
}

// handsOn names the commands that hand the words after -- on to another one, and so must see the --
// (see splitDash). To the others they are words like any other.
var handsOn = map[string]bool{"submit": true, "resume": true, "simulate": true, "rehearse": true}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// flagsFirst parts words into flags and others, with the -- between them that ends the flags for the
// parser. A -- among words stays in its place where keepDash is set.
func flagsFirst(flags []cli.Flag, words []string, keepDash bool) []string {
	var front, back []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			if !keepDash {
				i++
			}
			back = append(back, words[i:]...)
			break
		}
		if len(w) < 2 || w[0] != '-' {
			back = append(back, w)
			continue
		}
		front = append(front, w)
		if takesValue(flags, w) {
			if i++; i == len(words) {
				return front // for the parser to say that the value is missing
			}
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
