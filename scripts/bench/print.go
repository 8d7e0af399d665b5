package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
)

// print shows medians over the launches, in microseconds, and how ours stand against the best peer.
func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n%v\n%12s", t.Setting, "size")
	for _, side := range t.sides {
		fmt.Fprintf(w, "  %14s", side)
	}
	fmt.Fprintf(w, "  %-9s  %6s  %-16s\n", "best peer", "ratio", "interval")
	won, all := 0, 0
	for _, r := range t.Rows {
		fmt.Fprintf(w, "%12d", r.Size)
		for _, side := range t.sides {
			fmt.Fprintf(w, "  %14s", cell(r.Samples[side].median(), r.Wrong[side]))
		}
		for i, c := range r.Comparisons {
			if i > 0 { // ours with other buffers
				fmt.Fprintf(w, "\n%*s", 12+16*len(t.sides), c.Side)
			}
			fmt.Fprintf(w, "  %-9s  %6s  %-16s  %s", c.Peer, ratio(c.Ratio), fmt.Sprintf("[%s, %s]", ratio(c.Interval.Low), ratio(c.Interval.High)), c.Verdict)
			if covered := c.Interval.Coverage; covered > 0 && covered < make(samples, t.turns).interval().Coverage {
				fmt.Fprintf(w, " (the interval holds it with %.1f %%)", 100*float64(covered))
			}
			all++
			if c.Verdict == "win" {
				won++
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d of %d rows won\n", won, all)
	for _, side := range t.sides {
		if n := t.Hung[side]; n > 0 {
			fmt.Fprintf(w, "%s did not end by itself after its last row in %d of %d launches, and was killed\n", side, n, t.turns)
		}
	}
	for _, fault := range t.Faults {
		fmt.Fprintln(w, fault)
	}
}

func cell(us float64, wrong int64) string {
	switch {
	case math.IsNaN(us):
		return "-"
	case wrong > 0:
		return fmt.Sprintf("%d WRONG", wrong)
	}
	return significant(us)
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
