package main

import (
	"fmt"
	"io"
	"strings"

	"ddpbatch/scripts/bench/internal/report"
)

// method is how all sides are timed; docs/cli.md has the whole of it.
const method = `
Times are microseconds: the median over calls, one barrier before each, of the mean over ranks, less what reading the clock takes;
then the median over launches. All sides bind ranks to cores where there are as many as ranks: ddpbatch by itself, gloo by its program,
Open MPI and MPICH as their lines say. Sides are launched in turn, each turn beginning with another one. Ratio: ours / best peer
(the smallest median of those with a right result in every launch) launch by launch, its median, and the interval between order statistics that holds it with %s.
win: all of the interval is below 1; lose: all above 1, a wrong or missing result of ours, or a launch of ours that failed or did not end; even: neither; -: no such peer, or fewer than 2 launches.
failed: no launch gave the row; (5 of 7): only so many did.`

// header says what was compared, on what and how, in Markdown.
type header struct {
	report.Stamp
	Versions map[string]string `json:"versions"`
	Commands []string          `json:"commands"`
	Method   string            `json:"method"`
	sides    []string          // of Versions, in order
}

func (h header) print(w io.Writer) {
	fmt.Fprintf(w, "- %s\n", h.Line())
	for _, side := range h.sides {
		fmt.Fprintf(w, "- %s: %s\n", side, h.Versions[side])
	}
	for _, line := range h.Commands {
		fmt.Fprintf(w, "- `%s`\n", line)
	}
	fmt.Fprintf(w, "\n%s\n", h.Method)
}

func newHeader(o options, sides []side, settings []setting) header {
	h := header{
		Stamp:    report.NewStamp(),
		Versions: map[string]string{},
		Method:   strings.TrimSpace(fmt.Sprintf(method, report.Certainty(o.launches))),
	}
	for _, side := range sides {
		if side.version != "" {
			h.sides = append(h.sides, side.name)
			h.Versions[side.name] = side.version
		}
	}
	shown := map[string]bool{}
	for _, s := range settings {
		for _, side := range takingPart(sides, s) {
			if key := side.name + s.Transport; !shown[key] {
				shown[key] = true
				h.Commands = append(h.Commands, commandLine(side, o, s))
			}
		}
	}
	return h
}

// commandLine is one launch as a person would type it.
func commandLine(side side, o options, s setting) string {
	commands := side.commands(o, s)
	line := report.CommandLine(commands[0])
	if len(commands) > 1 {
		line += fmt.Sprintf(" (and RANK=1 to %d)", len(commands)-1)
	}
	return line
}
