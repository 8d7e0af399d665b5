package main

import (
	"fmt"
	"io"
	"strings"

	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// method describes how both sides are timed.
const method = `
Both sides train the same model on the same rows, drawn at random, in the same order, with SGD and momentum, each rank on a core of its
own (taskset) and with one thread. A step's time is rank 0's clock from the end of a warm-up to the end of the run, over the steps
between. PyTorch's batches are tensors before the clock starts, no loss is read until it stops, and the CNN is in its channels_last format,
the faster one; ddpbatch reads its batches, and writes its metrics, in that time. The sides are launched in turn, %d times; figures are
medians over launches. "ratio" is that of samples/s, ours / PyTorch, launch by launch, its median, and the interval between order statistics that
holds it with %s; "win": all of the interval is above 1; "lose": all below, or a launch of ours failed; "-": fewer than 2 of PyTorch's did not. "peak MiB" is the resident
memory of the largest rank; ours writes a checkpoint at its end. "loss" is the mean of the last ten steps: initial values are equal on both
sides but for the GPT's, which are drawn in another order. "outside products" is the share of our step that is spent outside of the BLAS
library, by go test -bench Training ./trainer; "waits for communication" is the share in which a rank does nothing else.`

func newHeader(o options, sides [2]side, library string) report.Header {
	h := report.NewHeader(fmt.Sprintf(method, o.Launches, report.Certainty(o.Launches)))
	m := modelsOf(o.models)[0]
	for _, side := range sides {
		h.About = append(h.About, side.name+": "+side.version)
		for _, ranks := range o.ranks {
			h.Commands = append(h.Commands, commandLine(side, m, ranks))
		}
	}
	h.About[own] += "; matrix products: " + library
	return h
}

// commandLine formats rank 0 of one launch as a user would type it.
func commandLine(side side, m model, ranks int) string {
	cmd := side.commands(m, ranks, "")[0]
	all := cmd.Env
	cmd.Env = nil
	for _, variable := range all {
		if ranks > 1 || strings.HasPrefix(variable, "OMP_") {
			cmd.Env = append(cmd.Env, strings.Replace(variable, "="+secret, "=...", 1))
		}
	}
	line := report.CommandLine(cmd)
	if ranks > 1 {
		line += " (and so on, to the last rank on its core)"
	}
	return line
}

// results holds everything that was measured.
type results struct {
	Header report.Header `json:"header"`
	Rows   []modelRow    `json:"rows"`
}

// printTable writes the rows for one number of ranks as a Markdown table.
func printTable(w io.Writer, ranks int, rows []modelRow) {
	titles := []string{
		"model", "samples/s", "PyTorch", "ratio", "interval", "verdict", "ms a step", "PyTorch", "peak MiB", "PyTorch", "ratio",
		"loss", "PyTorch",
	}
	word, last := "ranks", "waits for communication"
	if ranks == 1 {
		word, last = "rank", "outside products"
	}
	titles = append(titles, last)
	fmt.Fprintf(w, "\n### %d %s of 1 thread\n\n", ranks, word)
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

func (r *modelRow) cells() []string {
	launches := len(r.StepMS[own])
	cells := []string{
		r.setting.title, report.Significant(r.samplesPerS(own)), report.Significant(r.samplesPerS(peer)),
		report.Ratio(r.Speed), report.Interval(r.Interval, launches), r.verdict(),
		milliseconds(r.StepMS[own]), milliseconds(r.StepMS[peer]),
		report.Significant(r.PeakMiB[own].Median()), report.Significant(r.PeakMiB[peer].Median()), report.Ratio(r.Memory),
		loss(r.Loss[own]), loss(r.Loss[peer]),
	}
	if r.Ranks == 1 {
		return append(cells, percent(float64(r.Outside)))
	}
	return append(cells, percent(r.Exposed.Median()))
}

func loss(s stats.Samples) string { return report.Number("%.4f", s.Median()) }

func percent(share float64) string { return report.Number("%.1f %%", 100*share) }

// milliseconds formats a time with three digits, even if it is short.
func milliseconds(s stats.Samples) string { return report.Number("%.3g", s.Median()) }
