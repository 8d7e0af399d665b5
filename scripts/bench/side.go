package main

import (
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// side is one of those that are compared.
type side struct {
	name    string // the column's
	ours    bool
	version string
	startup time.Duration // about, for the estimate

	// takes tells whether it can be launched in a setting.
	takes func(setting) bool

	// commands are the processes of one launch; the first one's output has the rows.
	commands func(options, setting) []*exec.Cmd

	// parse reads a line of that output; false where it is no row.
	parse func(line string) (sample, bool)
}

// sample is one row of one launch.
type sample struct {
	size  int64
	us    float64
	wrong int64
}

func takingPart(sides []side, s setting) []side {
	return slices.DeleteFunc(slices.Clone(sides), func(side side) bool { return !side.takes(s) })
}

// peerArgs are the arguments of peers/mpi.c and peers/gloo.py.
func peerArgs(o options, s setting) []string {
	n := func(x int64) string { return strconv.FormatInt(x, 10) }
	return []string{s.Collective, n(o.begin), n(o.end), n(o.factor), n(o.budget.Microseconds())}
}
