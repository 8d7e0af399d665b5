package report

import (
	"cmp"
	"html/template"
	"math"
	"slices"
	"strings"
)

// dot is a value to draw, with the range that it stands for.
type dot struct{ x, y, low, high float64 }

// gap returns a dot that interrupts a line.
func gap() dot { return dot{x: math.NaN()} }

// line is a series of dots in one color.
type line struct {
	class string // of the style sheet: selects the color
	label string // at its end; may be empty
	lost  bool   // these steps do not count
	band  bool   // draw the range of each dot, too
	dots  []dot
}

// rule marks a place on the horizontal axis.
type rule struct {
	x     float64
	label string
}

// plot is a picture of lines over steps.
type plot struct {
	width, height float64
	title         string
	lines         []line
	rules         []rule
	bad           []float64 // steps whose values cannot be drawn, such as NaN
	log           bool
	percent       bool
}

const (
	plotTop    = 16
	plotBottom = 22
	plotLeft   = 46
	charWidth  = 6.2 // approximately, of the page's font at 11 pixels
)

// draw returns the picture, or "" if there is nothing to draw.
func (p plot) draw() template.HTML {
	x, y, ok := p.scales()
	if !ok {
		return ""
	}
	s := svg{width: p.width, height: p.height}
	for _, tick := range y.ticks(max(2, int(p.height/34))) {
		s.line("grid", x.from, y.at(tick), x.to, y.at(tick))
		s.text("tick end", x.from-5, y.at(tick)+3.5, p.label(tick))
	}
	unitAt := x.to + 6
	for _, tick := range x.ticks(max(2, int((x.to-x.from)/90))) {
		at := x.at(tick)
		unitAt = max(unitAt, at+float64(len(short(tick)))*charWidth/2+5)
		s.line("axis", at, y.from, at, y.from+4)
		s.text("tick middle", at, y.from+15, short(tick))
	}
	s.line("axis", x.from, y.from, x.to, y.from)
	s.text("tick", unitAt, y.from+15, "step")
	p.drawRules(&s, x, y)
	for _, l := range p.lines {
		l.draw(&s, x, y)
	}
	for _, at := range thinned(p.bad, x) {
		s.path("bad", "M"+px(at-3)+" "+px(y.to-1)+"h6l-3 6z")
	}
	p.drawLabels(&s, x, y)
	return s.html("plot", p.title)
}

// scales returns scales that fit all dots. ok is false if there are none.
func (p plot) scales() (x, y scale, ok bool) {
	left, right := math.Inf(1), math.Inf(-1)
	low, high := math.Inf(1), math.Inf(-1)
	labels := 0
	for _, l := range p.lines {
		for _, d := range l.dots {
			if math.IsNaN(d.x) {
				continue
			}
			left, right = min(left, d.x), max(right, d.x)
			if l.band {
				low, high = min(low, d.low), max(high, d.high)
			}
			low, high = min(low, d.y), max(high, d.y)
		}
		labels = max(labels, len([]rune(l.label)))
	}
	if math.IsInf(low, 1) {
		if len(p.bad) == 0 {
			return x, y, false
		}
		low, high, left, right = 0, 1, slices.Min(p.bad), slices.Max(p.bad)
	}
	if left == right {
		left, right = left-1, right+1
	}
	x = scale{low: left, high: right, from: plotLeft, to: p.width - max(48, 12+float64(min(labels, 40))*charWidth)}
	y = newScale(low, high, p.log && low > 1e-300)
	y.from, y.to = p.height-plotBottom, plotTop
	return x, y, true
}

// label formats a value of the vertical axis.
func (p plot) label(value float64) string {
	if p.percent {
		return short(value*100) + " %"
	}
	return short(value)
}

// drawRules marks the beginnings of attempts. If they are close together, some get no label.
func (p plot) drawRules(s *svg, x, y scale) {
	free, before := math.Inf(-1), math.Inf(-1)
	var d strings.Builder
	for _, r := range p.rules {
		at := x.at(r.x)
		if at < x.from || at > x.to || math.Abs(at-before) < 2 {
			continue
		}
		before = at
		d.WriteString("M" + px(at) + " " + px(y.from) + "V" + px(y.to-4))
		if width := float64(len(r.label)) * charWidth; at-width/2 > free+4 {
			s.text("tick middle", at, y.to-6, r.label)
			free = at + width/2
		}
	}
	s.path("rule", d.String())
}

func (l line) draw(s *svg, x, y scale) {
	if l.band && !l.lost {
		s.path(l.class+" band", l.bandPath(x, y))
	}
	class := l.class + " curve"
	if l.lost {
		class += " lost"
	}
	var d strings.Builder
	before := ""
	for _, dot := range l.dots {
		if math.IsNaN(dot.x) {
			before = ""
			continue
		}
		at := px(x.at(dot.x)) + " " + px(y.at(dot.y))
		switch before {
		case "":
			d.WriteString("M" + at)
		case at:
		default:
			d.WriteString("L" + at)
		}
		before = at
	}
	if len(l.dots) == 1 {
		d.WriteString("h.1") // the round line cap draws a point
		class += " single"
	}
	s.path(class, d.String())
}

// bandPath follows the largest values forward and the smallest values backward.
func (l line) bandPath(x, y scale) string {
	if !slices.ContainsFunc(l.dots, func(d dot) bool { return d.low != d.high }) {
		return ""
	}
	var d strings.Builder
	for i, dot := range l.dots {
		d.WriteString(map[bool]string{true: "M", false: "L"}[i == 0] + px(x.at(dot.x)) + " " + px(y.at(dot.high)))
	}
	for _, dot := range slices.Backward(l.dots) {
		d.WriteString("L" + px(x.at(dot.x)) + " " + px(y.at(dot.low)))
	}
	return d.String() + "z"
}

// drawLabels writes the labels at the ends of the lines, without overlaps.
func (p plot) drawLabels(s *svg, x, y scale) {
	const height = 13
	type label struct {
		at    float64
		class string
		text  string
	}
	var labels []label
	for _, l := range p.lines {
		if l.label != "" && len(l.dots) > 0 {
			labels = append(labels, label{y.at(l.dots[len(l.dots)-1].y) + 4, l.class, l.label})
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.at, b.at) })
	for i := range labels {
		if i > 0 {
			labels[i].at = max(labels[i].at, labels[i-1].at+height)
		}
	}
	bottom := y.from + 4
	for i := len(labels) - 1; i >= 0; i-- {
		labels[i].at = min(labels[i].at, bottom)
		bottom = labels[i].at - height
	}
	for _, l := range labels {
		s.text("label "+l.class, x.to+6, l.at, l.text)
	}
}

// thinned returns the positions of values on the screen, without those too close to the previous one to be distinguished.
func thinned(values []float64, x scale) (places []float64) {
	for _, value := range values {
		if at := x.at(value); len(places) == 0 || at-places[len(places)-1] >= 4 {
			places = append(places, at)
		}
	}
	return places
}
