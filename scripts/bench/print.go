package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
)

// print shows medians over the launches, in microseconds, and how ours stand against the best peer, as a table of Markdown.
func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %v\n\n", t.Setting)
	markdown(w, t.titles(), t.cells())
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
			cells = append(cells, ratio(c.Ratio), c.Interval.text(t.turns), c.Verdict)
		}
		rows = append(rows, cells)
	}
	return rows
}

// text says how much less than the header promises an interval is worth that has fewer launches.
func (i interval) text(launches int) string {
	text := fmt.Sprintf("[%s, %s]", ratio(i.Low), ratio(i.High))
	switch full := make(samples, launches).interval().Coverage; {
	case i.Coverage == 0:
		return "-"
	case i.Coverage < full:
		text += fmt.Sprintf(" (%.1f %%)", 100*float64(i.Coverage))
	}
	return text
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
		text += fmt.Sprintf(", %d without a peer", alone)
	}
	return text + "."
}

// cell is the median of a side's launches, and what there is to say against it.
func cell(s samples, wrong int64) string {
	there := len(s.sorted())
	switch {
	case there == 0:
		return "failed"
	case wrong > 0:
		return fmt.Sprintf("%d WRONG", wrong)
	case there < len(s):
		return fmt.Sprintf("%s (%d of %d)", significant(s.median()), there, len(s))
	}
	return significant(s.median())
}

// significant shows a time with three digits or all before the point.
func significant(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.2f", us)
	case us < 100:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

func ratio(n number) string {
	if math.IsNaN(float64(n)) {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n))
}

func writeJSON(path string, h header, tables []table) error {
	text, err := json.MarshalIndent(struct {
		Header header  `json:"header"`
		Tables []table `json:"tables"`
	}{h, tables}, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the samples: %w", err)
	}
	return nil
}
