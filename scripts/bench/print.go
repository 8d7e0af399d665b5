package main

import (
	"cmp"
	"fmt"
	"io"

	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// method describes how all sides are timed; docs/cli/bench.md has the details.
const method = `
Times are microseconds: the median over calls, one barrier before each, of the mean over ranks, less what reading the clock takes;
then the median over launches. All sides bind ranks to cores where there are as many as ranks: ddpbatch by itself, gloo by its program,
Open MPI and MPICH as their lines say. Sides are launched in turn, each turn beginning with another one. Ratio: ours / best peer
(the smallest median of those with a right result in every launch) launch by launch, its median, and the interval between order statistics that holds it with %s.
win: all of the interval is below 1; lose: all above 1, a wrong or missing result of ours, or a launch of ours that failed or did not end; even: neither; -: no such peer, or fewer than 2 launches.
failed: no launch gave the row; (5 of 7): only so many did.`

func newHeader(o options, sides []side, settings []setting) report.Header {
	h := report.NewHeader(fmt.Sprintf(method, report.Certainty(o.Launches)))
	for _, side := range sides {
		if side.version != "" {
			h.About = append(h.About, side.name+": "+side.version)
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

// commandLine formats one launch as a user would type it.
func commandLine(side side, o options, s setting) string {
	commands := side.commands(o, s)
	line := report.CommandLine(commands[0])
	if len(commands) > 1 {
		line += fmt.Sprintf(" (and RANK=1 to %d)", len(commands)-1)
	}
	return line
}

// results holds everything that was measured.
type results struct {
	Header report.Header `json:"header"`
	Tables []table       `json:"tables"`
}

// print writes medians over the launches, in microseconds, and the comparison of ours with the best peer, as a Markdown table.
func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %v\n\n", t.Setting)
	report.Markdown(w, t.titles(), t.cells())
	fmt.Fprintf(w, "\n%s\n", t.score())
	for _, side := range t.sides {
		if n := t.Hung[side]; n > 0 {
			fmt.Fprintf(w, "- %s did not end by itself after its last row in %d of %d launches, and was killed\n", side, n, t.turns)
		}
	}
	for _, fault := range t.Faults {
		fmt.Fprintf(w, "- %s\n", fault)
	}
}

func (t *table) titles() []string {
	titles := append([]string{"bytes"}, t.sides...)
	titles = append(titles, "best peer")
	for i, c := range t.Rows[0].Comparisons {
		of := ""
		if i > 0 { // ours with other buffers
			of = " of " + c.Side
		}
		titles = append(titles, "ratio"+of, "interval", "verdict")
	}
	return titles
}

func (t *table) cells() [][]string {
	var rows [][]string
	for _, r := range t.Rows {
		cells := []string{fmt.Sprint(r.Size)}
		for _, side := range t.sides {
			cells = append(cells, cell(r.Samples[side], r.Wrong[side]))
		}
		for i, c := range r.Comparisons {
			if i == 0 {
				cells = append(cells, cmp.Or(c.Peer, "-"))
			}
			cells = append(cells, report.Ratio(c.Ratio), report.Interval(c.Interval, t.turns), c.Verdict)
		}
		rows = append(rows, cells)
	}
	return rows
}

// score counts the verdicts.
func (t *table) score() string {
	verdicts, all := map[string]int{}, 0
	for _, r := range t.Rows {
		for _, c := range r.Comparisons {
			verdicts[c.Verdict]++
			all++
		}
	}
	text := fmt.Sprintf("%d of %d comparisons won, %d even, %d lost", verdicts["win"], all, verdicts["even"], verdicts["lose"])
	if alone := verdicts["-"]; alone > 0 {
		text += fmt.Sprintf(", %d without a peer or an interval", alone)
	}
	return text + "."
}

// cell formats the median of a side's launches, and what is wrong with it.
func cell(s stats.Samples, wrong int64) string {
	switch {
	case len(s.Sorted()) == 0:
		return "failed"
	case wrong > 0:
		return fmt.Sprintf("%d WRONG", wrong)
	}
	return report.Median(s)
}
