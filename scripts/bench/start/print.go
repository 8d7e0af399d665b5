package main

import (
	"fmt"
	"io"
	"strings"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/report"
)

// method describes how everything is timed.
const method = `
"met" is the time from the command until rank 0's line has come that all ranks are past their library's initialisation and a barrier; "ended" until
the command has ended. Ranks do nothing else. Sides are launched in turn, %d times, each turn beginning with another one, after one that does not
count. "ratio" is that of times until they met, ours (the first row) / theirs, launch by launch, its median, and the interval between order
statistics that holds it with %s; "win": all of the interval is below 1; "lose": all above, or a launch of ours failed.`

func newHeader(o options, p prepared) report.Header {
	h, versions := report.NewHeader(""), []string{p.version}
	if len(p.comparisons) > 0 {
		h = report.NewHeader(fmt.Sprintf(method, o.Launches, report.Certainty(o.Launches)))
	}
	for _, c := range p.comparisons {
		for _, s := range c.sides {
			if s.version != "" {
				versions = append(versions, s.version)
			}
			h.Commands = append(h.Commands, report.CommandLine(s.command(o.ranks[len(o.ranks)-1])))
		}
	}
	h.About = []string{strings.Join(versions, "; ")}
	return h
}

// results holds everything that was measured.
type results struct {
	Header  report.Header   `json:"header"`
	Tables  []table         `json:"tables"`
	Figures []paired.Figure `json:"figures"`
}

func (t *table) print(w io.Writer) {
	plural := "s"
	if t.Ranks == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "\n### %d rank%s, %s\n\n", t.Ranks, plural, t.Title)
	var cells [][]string
	for _, r := range t.Rows {
		line := append([]string{r.Side, report.Median(r.Times), report.Range(r.Times)}, report.Compared(r.Row, t.Rows[0].Row)...)
		cells = append(cells, append(line, report.Median(r.Ended)))
	}
	report.Markdown(w, []string{"side", "met, ms", "range", "ratio", "interval", "verdict", "ended, ms"}, cells)
	if len(t.Faults) > 0 {
		fmt.Fprintln(w)
	}
	for _, fault := range t.Faults {
		fmt.Fprintf(w, "- %s\n", fault)
	}
}
