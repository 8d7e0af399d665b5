package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// svg is a picture. Its colors are classes of the page's style sheet, which has light and dark ones. All text from other sources must go
// through text and title.
type svg struct {
	width, height float64
	out           strings.Builder
}

// html returns the whole picture. label describes it for people who cannot see it.
func (s *svg) html(class, label string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`,
		class, px(s.width), px(s.height), html.EscapeString(label), s.out.String()))
}

// px formats a length for SVG, in tenths of a pixel, which is what a screen can show.
func px(x float64) string {
	if math.IsNaN(x) || math.Abs(x) > 1e6 { // it cannot be drawn
		x = 0
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

func (s *svg) path(class, d string) {
	if d != "" {
		fmt.Fprintf(&s.out, `<path class="%s" d="%s"/>`, class, d)
	}
}

func (s *svg) line(class string, x1, y1, x2, y2 float64) {
	s.path(class, "M"+px(x1)+" "+px(y1)+"L"+px(x2)+" "+px(y2))
}

// rect draws a bar. A title that is not empty is shown when a pointer rests on the bar.
func (s *svg) rect(class string, x, y, width, height float64, title string) {
	fmt.Fprintf(&s.out, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, px(x), px(y), px(width), px(height))
	if title == "" {
		s.out.WriteString("/>")
		return
	}
	fmt.Fprintf(&s.out, "><title>%s</title></rect>", html.EscapeString(title))
}

// text writes text that begins at x, ends there, or is centered there, depending on its class.
func (s *svg) text(class string, x, y float64, text string) {
	fmt.Fprintf(&s.out, `<text class="%s" x="%s" y="%s">%s</text>`, class, px(x), px(y), html.EscapeString(text))
}

// scale maps values to pixels.
type scale struct {
	low, high float64 // values
	from, to  float64 // pixels
	log       bool
}

// newScale returns a scale with room for values from low to high.
func newScale(low, high float64, log bool) scale {
	s := scale{low: low, high: high, log: log}
	switch room := (high/2 - low/2) * 0.08; {
	case log:
		s.low, s.high = low/1.1, high*1.1
	case low == 0 && high == 0:
		s.high = 1
	case low == high:
		s.low, s.high = low-math.Abs(low)/10, high+math.Abs(high)/10
	case low >= 0 && low <= 0.4*high:
		s.low, s.high = 0, high+room
	default:
		s.low, s.high = low-room, high+room
	}
	s.low, s.high = max(s.low, -math.MaxFloat64), min(s.high, math.MaxFloat64)
	return s
}

// at returns the position of a value. It halves the values so that no difference overflows.
func (s scale) at(value float64) float64 {
	low, high := s.low, s.high
	if s.log {
		value, low, high = math.Log(value), math.Log(low), math.Log(high)
	}
	if low == high {
		return (s.from + s.to) / 2
	}
	return s.from + (value/2-low/2)/(high/2-low/2)*(s.to-s.from)
}

// ticks returns about n round values in the scale.
func (s scale) ticks(n int) (list []float64) {
	if s.log {
		return s.logTicks(n)
	}
	rough := (s.high/2 - s.low/2) / float64(n) * 2
	if !(rough > 0) || math.IsInf(rough, 0) {
		return nil
	}
	unit := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if unit*factor >= rough {
			unit *= factor
			break
		}
	}
	first := math.Ceil(s.low / unit)
	for i := range 3 * n {
		tick := (first + float64(i)) * unit
		if tick > s.high || math.IsInf(tick, 0) {
			break
		}
		if tick = closest(tick); len(list) == 0 || tick > list[len(list)-1] {
			list = append(list, tick)
		}
	}
	return list
}

// closest removes from a value what rounding has added to its digits.
func closest(value float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 12, 64), 64)
	return rounded
}

// logTicks returns powers of ten and, if there are few, also two and five times these.
func (s scale) logTicks(n int) (list []float64) {
	first, last := math.Floor(math.Log10(s.low)), math.Ceil(math.Log10(s.high))
	each := max(1, math.Ceil((last-first)/float64(n)))
	factors := []float64{1}
	if math.Log10(s.high)-math.Log10(s.low) <= 3 {
		factors = []float64{1, 2, 5}
	}
	for power := first; power <= last; power += each {
		for _, factor := range factors {
			if tick := closest(factor * math.Pow(10, power)); tick >= s.low && tick <= s.high {
				list = append(list, tick)
			}
		}
	}
	return list
}

// short formats a number for an axis or a table: 0.05, 1.234, 250k, 1e-06.
func short(value float64) string {
	size := math.Abs(value)
	switch {
	case size >= 1e15 || size > 0 && size < 1e-3:
		return strconv.FormatFloat(value, 'g', 3, 64)
	case size >= 1e9:
		return strconv.FormatFloat(closest4(value/1e9), 'f', -1, 64) + "G"
	case size >= 1e6:
		return strconv.FormatFloat(closest4(value/1e6), 'f', -1, 64) + "M"
	case size >= 1e4:
		return strconv.FormatFloat(closest4(value/1e3), 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(closest4(value), 'f', -1, 64)
}

// closest4 rounds a value to four digits.
func closest4(value float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 4, 64), 64)
	return rounded
}

// commas formats an integer in groups of three digits.
func commas(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}
