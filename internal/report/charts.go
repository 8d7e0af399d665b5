package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Figure is a picture with its title and note.
type Figure struct {
	Title   string
	Note    string // may be empty
	Picture template.HTML
	Wide    bool
}

const (
	wideWidth, wideHeight   = 1040, 300
	smallWidth, smallHeight = 505, 190
)

// titles are the metrics that every run has, in the order of the page.
var titles = []struct{ name, title string }{
	{"accuracy", "Accuracy of evaluations"},
	{"samples_per_s", "Samples per second, of all ranks"},
	{"lr", "Learning rate"},
	{"comm_share", "Share of the time that is communication alone"},
	{"overlap", "Share of the communication that overlaps with backward"},
}

// figures returns the curves of a run: all losses in one wide figure, and each other metric in its own.
func (m *Metrics) figures() (all []Figure) {
	byName := map[string]*Curve{}
	for i := range m.Curves {
		byName[m.Curves[i].Name] = &m.Curves[i]
	}
	var losses []*Curve
	for _, name := range []string{"loss", "eval_loss", "epoch_loss"} {
		if c := byName[name]; c != nil {
			losses = append(losses, c)
			delete(byName, name)
		}
	}
	if len(losses) > 0 {
		all = append(all, m.figure("Loss", losses, true))
	}
	for _, known := range titles {
		if c := byName[known.name]; c != nil {
			all = append(all, m.figure(known.title, []*Curve{c}, false))
			delete(byName, known.name)
		}
	}
	for i := range m.Curves { // in the order of the metrics lines
		if c := &m.Curves[i]; byName[c.Name] != nil {
			all = append(all, m.figure(shown(c.Name), []*Curve{c}, false))
		}
	}
	return all
}

// figure draws curves.
func (m *Metrics) figure(title string, curves []*Curve, wide bool) Figure {
	p := plot{width: smallWidth, height: smallHeight, title: title, rules: m.rules()}
	if wide {
		p.width, p.height = wideWidth, wideHeight
	}
	name := curves[0].Name
	p.percent = name == "accuracy" || name == "comm_share" || name == "overlap"
	bad, first := 0, int64(0)
	for i, c := range curves {
		p.lines = append(p.lines, m.linesOf(c, fmt.Sprintf("c%d", i), len(curves) > 1, p.percent)...)
		for _, part := range c.Parts {
			for _, point := range part.Points {
				if point.NonFinite > 0 && bad == 0 {
					first = point.Step
				}
				if bad += point.NonFinite; point.NonFinite > 0 {
					p.bad = append(p.bad, float64(point.Step))
				}
			}
		}
	}
	var notes []string
	if p.log = spansDecades(name, p.lines); p.log {
		notes = append(notes, "logarithmic")
	}
	if bad > 0 {
		notes = append(notes, fmt.Sprintf("%s NaN or infinite, the first by step %s", plural(bad, "value is", "values are"), commas(first)))
	}
	return Figure{Title: title, Note: strings.Join(notes, "; "), Picture: p.draw(), Wide: wide}
}

// linesOf returns the lines of a curve: one for the steps that later sections repeated, and one for the steps that count, of all sections
// together. The latter is split if the run started again from an earlier step.
func (m *Metrics) linesOf(c *Curve, class string, named, percent bool) (lines []line) {
	lost, counts := line{class: class, lost: true}, line{class: class, band: true}
	for _, part := range c.Parts {
		section, isLost := m.Sections[part.Section], false
		for _, point := range part.Points {
			if point.Mean == nil {
				continue
			}
			d := dot{float64(point.Step), *point.Mean, *point.Min, *point.Max}
			n := len(counts.dots)
			switch {
			case point.Step < section.Kept:
				if n > 0 && counts.dots[n-1].x > d.x {
					lines = append(lines, counts)
					counts.dots = nil
				}
				counts.dots = append(counts.dots, d)
				continue
			case !isLost && len(lost.dots) > 0:
				lost.dots = append(lost.dots, gap())
			}
			if !isLost && n > 0 && counts.dots[n-1].x < d.x {
				lost.dots = append(lost.dots, counts.dots[n-1])
			}
			isLost = true
			lost.dots = append(lost.dots, d)
		}
	}
	if n := len(counts.dots); n > 0 {
		counts.label = (plot{percent: percent}).label(counts.dots[n-1].y)
		if named {
			counts.label = shown(c.Name) + " " + counts.label
		}
		lines = append(lines, counts)
	}
	if len(lost.dots) > 0 {
		lines = append([]line{lost}, lines...)
	}
	return lines
}

// rules mark the beginnings of all sections but the first.
func (m *Metrics) rules() (rules []rule) {
	for i, s := range m.Sections {
		if i == 0 {
			continue
		}
		label := ""
		if s.Attempt > 0 {
			label = "#" + strconv.Itoa(s.Attempt)
		}
		rules = append(rules, rule{float64(s.from), label})
	}
	return rules
}

// spansDecades reports whether a metric usually falls by orders of magnitude, and has done so.
func spansDecades(name string, lines []line) bool {
	isLoss := strings.Contains(name, "loss") || strings.Contains(name, "perplexity") || strings.Contains(name, "norm")
	low, high := math.Inf(1), 0.0
	for _, l := range lines {
		for _, d := range l.dots {
			if !math.IsNaN(d.x) { // a gap
				low, high = min(low, d.low), max(high, d.high)
			}
		}
	}
	return isLoss && low > 0 && high/low >= 20 && !math.IsInf(low, 1)
}

// figures returns one figure for each metric, with the curves of an array's elements. The best elements are labeled.
func (e *Elements) figures() (all []Figure) {
	const named = 5
	for _, name := range e.names() {
		p := plot{width: wideWidth, height: wideHeight, title: name}
		for i := len(e.Metrics) - 1; i >= 0; i-- { // the best last, to be drawn over the others
			m := &e.Metrics[i]
			class := "c9"
			if i < named {
				class = fmt.Sprintf("c%d", i)
			}
			for j := range m.Curves {
				if m.Curves[j].Name != name {
					continue
				}
				lines := m.linesOf(&m.Curves[j], class, false, name == "accuracy")
				for k := range lines {
					lines[k].band = false
					if lines[k].label != "" {
						lines[k].label = ""
						if i < named {
							lines[k].label = strconv.Itoa(m.Index)
						}
					}
				}
				p.lines = append(p.lines, lines...)
			}
		}
		p.percent = name == "accuracy"
		note := fmt.Sprintf("of %s; numbers are the elements'", plural(len(e.Metrics), "element", "elements"))
		if p.log = spansDecades(name, p.lines); p.log {
			note += "; logarithmic"
		}
		all = append(all, Figure{Title: shown(name), Note: note, Picture: p.draw(), Wide: true})
	}
	return all
}

// figure draws the median of the ranks' step times, and the band between the fastest and the slowest rank.
func (s *StepTimes) figure() Figure {
	p := plot{width: wideWidth, height: smallHeight, title: "Seconds per step"}
	median, slowest := line{class: "c0", band: true}, line{class: "c3"}
	for _, w := range s.Windows {
		if w.Median <= 0 {
			continue
		}
		median.dots = append(median.dots, dot{float64(w.Step), w.Median, w.Fastest, w.Slowest})
		slowest.dots = append(slowest.dots, dot{float64(w.Step), w.Slowest, w.Slowest, w.Slowest})
	}
	if n := len(median.dots); n > 0 {
		median.label, slowest.label = "median "+short(median.dots[n-1].y), "slowest "+short(slowest.dots[n-1].y)
	}
	p.lines = []line{median, slowest}
	return Figure{Title: "Seconds per step, by window", Note: "the band reaches from the fastest rank to the slowest",
		Picture: p.draw(), Wide: true}
}

// plural returns a number with its noun.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return commas(int64(n)) + " " + more
}
