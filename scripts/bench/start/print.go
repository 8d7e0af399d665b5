package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// method is how all is timed.
const method = `
"met" is the time from the command until rank 0's line has come that all ranks are past their library's initialisation and a barrier; "ended" until
the command has ended. Ranks do nothing else. Sides are launched in turn, %d times, each turn beginning with another one, after one that does not
count. "ratio" is that of times until they met, ours (the first row) / theirs, launch by launch, its median, and the interval between order
statistics that holds it with %s; "win": all of the interval is below 1; "lose": all above, or a launch of ours failed.`

// header says what was compared, on what and how.
type header struct {
	report.Stamp
	Versions []string `json:"versions"`
	Commands []string `json:"commands"` // none where nothing is launched beside peers
	Method   string   `json:"method"`   // likewise
}

func newHeader(o options, p prepared) header {
	h := header{
		Stamp:    report.NewStamp(),
		Versions: []string{p.version},
	}
	if len(p.contests) == 0 {
		return h
	}
	h.Method = fmt.Sprintf(method, o.Launches, report.Certainty(o.Launches))
	for _, c := range p.contests {
		for _, s := range c.sides {
			if s.version != "" {
				h.Versions = append(h.Versions, s.version)
			}
			h.Commands = append(h.Commands, report.CommandLine(s.command(o.ranks[len(o.ranks)-1])))
		}
	}
	return h
}

func (h header) print(w io.Writer) {
	fmt.Fprintf(w, "- %s\n- %s\n", h.Line(), strings.Join(h.Versions, "; "))
	for _, line := range h.Commands {
		fmt.Fprintf(w, "- `%s`\n", line)
	}
	fmt.Fprintln(w, h.Method)
}

// results is all that was measured.
type results struct {
	Header  header          `json:"header"`
	Tables  []table         `json:"tables"`
	Figures []report.Figure `json:"figures"`
}

func (t *table) print(w io.Writer) {
	plural := "s"
	if t.Ranks == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "\n### %d rank%s, %s\n\n", t.Ranks, plural, t.Title)
	var cells [][]string
	for i, r := range t.Rows {
		line := []string{r.Side, median(r.Met), span(r.Met), "", "", "", median(r.Ended)}
		if i > 0 {
			line[3], line[4], line[5] = report.Ratio(r.Ratio), report.Interval(r.Interval, len(r.Met)), t.verdict(r)
		}
		cells = append(cells, line)
	}
	report.Markdown(w, []string{"side", "met, ms", "range", "ratio", "interval", "verdict", "ended, ms"}, cells)
	if len(t.Faults) > 0 {
		fmt.Fprintln(w)
	}
	for _, fault := range t.Faults {
		fmt.Fprintf(w, "- %s\n", fault)
	}
}

// verdict is that of the times, and lost where a launch of ours failed.
func (t *table) verdict(r launcherTimes) string {
	if slices.ContainsFunc(t.Rows[0].Met, math.IsNaN) {
		return "lose"
	}
	return paired.Verdict(r.Interval)
}

// median says how many launches it is of, where some are missing.
func median(s stats.Samples) string {
	text := report.Significant(s.Median())
	if there := len(s.Sorted()); there < len(s) {
		text += fmt.Sprintf(" (%d of %d)", there, len(s))
	}
	return text
}

func span(s stats.Samples) string {
	there := s.Sorted()
	if len(there) == 0 {
		return "-"
	}
	return report.Significant(there[0]) + " to " + report.Significant(there[len(there)-1])
}

func (r *results) printFigures(w io.Writer) {
	if len(r.Figures) > 0 {
		fmt.Fprintf(w, "\n### agents\n\n")
		report.Figures(w, r.Figures)
	}
}
