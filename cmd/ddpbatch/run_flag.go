package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
)

// runFlag is one flag of run. The flag package of the other commands does not do here: torchrun takes -r3 and -mr 3 but
// no -nnodes, its flags may be cut short, and its lines end at the script, whose own flags may have the same names.
type runFlag struct {
	name  string // with dashes; underscores do for them
	short byte   // 0: none
	word  string // what stands for its value in help; "": a switch
	usage string
	own   bool   // torchrun does not have it: no PET_ variable, no short form of the name
	blank bool   // the empty text is a value of its own
	off   bool   // a switch that is on by itself at times: --NAME=false turns it off
	old   string // its name in older versions, written whole; "": none
	also  string // a second variable of torchrun's, which PET_ goes before; "": none
	idle  string // why it changes nothing here; "": it does
	set   func(o *runOptions, text string) error
}

// isSwitch tells whether the flag takes no value.
func (f *runFlag) isSwitch() bool { return f.word == "" }

// variables are the environment variables that say what the flag's absence leaves open, the first one first.
func (f *runFlag) variables() (names []string) {
	for _, name := range []string{f.variable(), f.also} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// variable is torchrun's own for the flag; "": none.
func (f *runFlag) variable() string {
	if f.own {
		return ""
	}
	return "PET_" + strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))
}

// help is the flag as the library's help shows it.
func (f *runFlag) help() cli.Flag {
	var short []string
	if f.short != 0 {
		short = []string{string(f.short)}
	}
	if f.isSwitch() {
		return &cli.BoolFlag{Name: f.name, Aliases: short, Usage: f.usage}
	}
	return &valueHelp{&cli.StringFlag{Name: f.name, Aliases: short, Usage: f.usage}, f.word}
}

// valueHelp is a flag that help shows with a word for its value.
type valueHelp struct {
	*cli.StringFlag
	word string
}

func (f *valueHelp) String() string {
	names, usage, _ := strings.Cut(f.StringFlag.String(), "\t")
	return strings.ReplaceAll(names, " value", " "+f.word) + "\t" + usage
}

// runFlagNamed is the flag with a name in either spelling; nil where there is none.
func runFlagNamed(name string) *runFlag {
	name = strings.ReplaceAll(name, "_", "-")
	i := slices.IndexFunc(runFlags, func(f *runFlag) bool { return name == f.name || name == f.old && f.old != "" })
	if i < 0 {
		return nil
	}
	return runFlags[i]
}

// runFlagShort is the flag of one letter; nil where there is none.
func runFlagShort(letter byte) *runFlag {
	i := slices.IndexFunc(runFlags, func(f *runFlag) bool { return f.short == letter && letter != 0 })
	if i < 0 {
		return nil
	}
	return runFlags[i]
}

// runFlagsFrom are those of torchrun's flags whose names begin like that: it takes a name that is cut short where
// only one can be meant. Flags of ddpbatch's own are written whole, so that they take no short name from torchrun's.
func runFlagsFrom(beginning string) (list []*runFlag) {
	for _, f := range runFlags {
		if !f.own && strings.HasPrefix(f.name, strings.ReplaceAll(beginning, "_", "-")) {
			list = append(list, f)
		}
	}
	return list
}

// nearFlag is the name of the flag that is meant by a name that is none: one with a slip, or the beginning of one, be it in the plural (nprocs).
// "": none is near.
func nearFlag(name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	if near := jobfile.Nearest(name, runFlagNames()); near != "" {
		return near
	}
	if cut := runFlagsFrom(strings.TrimSuffix(name, "s")); len(cut) == 1 {
		return cut[0].name
	}
	return ""
}

// runFlagNames lists all names.
func runFlagNames() []string {
	names := make([]string, len(runFlags))
	for i, f := range runFlags {
		names[i] = f.name
	}
	return names
}
