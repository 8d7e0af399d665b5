package main

import (
	"cmp"
	"fmt"
	"io"

	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// print shows medians over the launches, in microseconds, and how ours stand against the best peer, as a table of Markdown.
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

// cell is the median of a side's launches, and what there is to say against it.
func cell(s stats.Samples, wrong int64) string {
	there := len(s.Sorted())
	switch {
	case there == 0:
		return "failed"
	case wrong > 0:
		return fmt.Sprintf("%d WRONG", wrong)
	case there < len(s):
		return fmt.Sprintf("%s (%d of %d)", report.Significant(s.Median()), there, len(s))
	}
	return report.Significant(s.Median())
}

func writeJSON(path string, h header, tables []table) error {
	return report.WriteJSON(path, struct {
		Header header  `json:"header"`
		Tables []table `json:"tables"`
	}{h, tables})
}
