package main

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// printTable shows the rows of one number of ranks as a table of Markdown.
func printTable(w io.Writer, ranks int, rows []row) {
	fmt.Fprintf(w, "\n### %d %s of 1 thread\n\n", ranks, plural(ranks, "rank"))
	titles := []string{
		"model", "samples/s", "PyTorch", "ratio", "interval", "verdict", "ms a step", "PyTorch", "peak MiB", "PyTorch", "ratio",
		"loss", "PyTorch",
	}
	if ranks == 1 {
		titles = append(titles, "outside products")
	} else {
		titles = append(titles, "waits for communication")
	}
	var cells [][]string
	for i := range rows {
		cells = append(cells, rows[i].cells())
	}
	report.Markdown(w, titles, cells)
	for _, r := range rows {
		for _, fault := range r.Faults {
			fmt.Fprintf(w, "\n- %s\n", fault)
		}
	}
}

func (r *row) cells() []string {
	launches := len(r.StepMS[own])
	cells := []string{
		r.setting.title, report.Significant(r.samplesPerS(own)), report.Significant(r.samplesPerS(peer)),
		report.Ratio(r.Speed), report.Interval(r.Interval, launches), r.verdict(),
		milliseconds(r.StepMS[own].Median()), milliseconds(r.StepMS[peer].Median()),
		report.Significant(r.PeakMiB[own].Median()), report.Significant(r.PeakMiB[peer].Median()), report.Ratio(r.Memory),
		loss(r.Loss[own]), loss(r.Loss[peer]),
	}
	if r.Ranks == 1 {
		return append(cells, percent(float64(r.Outside)))
	}
	return append(cells, percent(r.Exposed.Median()))
}

func loss(s stats.Samples) string {
	if math.IsNaN(s.Median()) {
		return "-"
	}
	return fmt.Sprintf("%.4f", s.Median())
}

func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func writeJSON(path string, h header, rows []row) error {
	return report.WriteJSON(path, struct {
		Header header `json:"header"`
		Rows   []row  `json:"rows"`
	}{h, rows})
}

// milliseconds has three digits, however short the time is.
func milliseconds(ms float64) string {
	if math.IsNaN(ms) {
		return "-"
	}
	return strconv.FormatFloat(ms, 'g', 3, 64)
}
