package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

func TestNumbersAreShort(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 0.05: "0.05", 1.23456: "1.235", -3: "-3", 9999: "9999", 12345: "12.35k", 250_000: "250k", 1e6: "1M", 3.5e9: "3.5G",
		1e-4: "0.0001", 0.00012345: "0.000123", 1e-6: "1e-06", 1e20: "1e+20", -1e-9: "-1e-09", 0.001: "0.001",
	} {
		if got := short(value); got != want {
			t.Errorf("%g is %s, not %s", value, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567",
		math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := commas(n); got != want {
			t.Errorf("%d is %s, not %s", n, got, want)
		}
	}
}

func TestTicksAreRound(t *testing.T) {
	for _, test := range []struct {
		scale scale
		want  string
	}{
		{scale{low: 0, high: 1}, "[0 0.2 0.4 0.6 0.8 1]"},
		{scale{low: -3, high: 17}, "[0 5 10 15]"},
		{scale{low: 0.31, high: 0.34}, "[0.31 0.32 0.33 0.34]"},
		{scale{low: 0, high: 212_000}, "[0 50000 100000 150000 200000]"},
		{scale{low: 0.05, high: 20, log: true}, "[0.05 0.1 0.2 0.5 1 2 5 10 20]"},
		{scale{low: 1e-9, high: 1e3, log: true}, "[1e-09 1e-06 0.001 1 1000]"},
		{scale{low: 5, high: 5}, "[]"},
	} {
		if got := fmt.Sprint(test.scale.ticks(5)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.scale, got, test.want)
		}
	}
}

// A single value is in the middle of the axis. If all values are 0, they are at the bottom of an axis that ends at 1.
func TestAxisOfOneValue(t *testing.T) {
	for value, want := range map[float64][2]float64{0: {0, 1}, 2: {1.8, 2.2}, -2: {-2.2, -1.8}, 1e-12: {0.9e-12, 1.1e-12}} {
		if s := newScale(value, value, false); math.Abs(s.low-want[0]) > 1e-15 || math.Abs(s.high-want[1]) > 1e-15 {
			t.Errorf("%g is drawn from %g to %g", value, s.low, s.high)
		}
	}
}

// TestUnitOfTheStepAxisIsClear: the word "step" is to the right of the last number, does not overlap it, and is within the picture.
func TestUnitOfTheStepAxisIsClear(t *testing.T) {
	places := regexp.MustCompile(`<text class="(tick middle|tick)" x="([0-9.]+)"[^>]*>([^<]*)</text>`)
	for _, last := range []float64{4, 120, 1000, 20_000, 125_000} {
		p := plot{width: 300, height: 120, title: "x", lines: []line{{dots: []dot{{x: 0}, {x: last, y: 1}}}}}
		number, unit := 0.0, 0.0
		for _, m := range places.FindAllStringSubmatch(string(p.draw()), -1) {
			at, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			switch m[3] {
			case "step":
				unit = at
			default:
				number = max(number, at+float64(len(m[3]))*charWidth/2)
			}
		}
		if number == 0 || unit <= number+2 || unit+4*charWidth > p.width {
			t.Errorf("steps to %g: the numbers end at %g, the word stands at %g, of %g", last, number, unit, p.width)
		}
	}
}

// FuzzPlot: whatever is drawn, the picture is XML in which all numbers are finite, and the dots lie within it.
func FuzzPlot(f *testing.F) {
	f.Add(0.0, 1.0, 2.0, 3.0, 4.0, "a")
	f.Add(5.0, 1e308, 6.0, -1e308, 1e-300, `"></svg><script>`)
	f.Add(7.0, 1e-310, 7.0, 5e-324, 0.0, "\x00\xff")
	f.Add(1.0, 5e-324, 2.0, 1e308, 5e-324, "")
	f.Add(-9e15, 1.0, 9e15, 1.0000000000000002, 1.0, "")
	f.Fuzz(func(t *testing.T, x1, y1, x2, y2, low float64, name string) {
		for _, v := range []float64{x1, y1, x2, y2, low} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Skip("points are finite")
			}
		}
		for _, log := range []bool{false, true} {
			p := plot{
				width: 500, height: 200, title: name, log: log, bad: []float64{x1}, rules: []rule{{x2, shown(name)}},
				lines: []line{{class: "c0", band: true, label: shown(name),
					dots: []dot{{x1, y1, min(y1, low), max(y1, low)}, {x2, y2, y2, y2}}}},
			}
			picture := string(p.draw())
			if strings.Contains(picture, "NaN") && !strings.Contains(name, "NaN") || strings.Contains(picture, "Inf") &&
				!strings.Contains(name, "Inf") {
				t.Fatalf("a number is none: %s", picture)
			}
			for d := xml.NewDecoder(strings.NewReader(picture)); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Fatalf("%v: %s", err, picture)
				}
				if err != nil {
					break
				}
				if start, ok := token.(xml.StartElement); ok && start.Name.Local == "script" {
					t.Fatalf("there is a script: %s", picture)
				}
			}
			x, y, _ := p.scales()
			for _, d := range p.lines[0].dots {
				if at := x.at(d.x); at < x.from-1 || at > x.to+1 {
					t.Fatalf("%g is drawn at %g, not from %g to %g", d.x, at, x.from, x.to)
				}
				for _, value := range []float64{d.low, d.y, d.high} {
					if at := y.at(value); at > y.from+1 || at < y.to-1 {
						t.Fatalf("%g is drawn at %g, not from %g to %g", value, at, y.to, y.from)
					}
				}
			}
		}
	})
}

// TestAttemptsAreSeen: steps that a later attempt repeated are drawn apart from those that count.
func TestAttemptsAreSeen(t *testing.T) {
	m := read(t, `{"attempt":1,"step":10,"loss":4}`+"\n"+`{"attempt":1,"step":20,"loss":3}`+"\n"+`{"attempt":1,"step":30,"loss":2}`+"\n"+
		`{"attempt":2,"step":30,"loss":2.5,"resume_step":20}`+"\n"+`{"attempt":2,"step":40,"loss":1}`)
	c := find(t, m, "loss")
	steps := func(lost bool) (list []float64) {
		for _, l := range m.linesOf(&c, "c0", false, false) {
			for _, d := range l.dots {
				if l.lost == lost {
					list = append(list, d.x)
				}
			}
		}
		return list
	}
	if got := steps(false); !slices.Equal(got, []float64{10, 20, 30, 40}) {
		t.Errorf("the steps that count are %v", got)
	}
	if got := steps(true); !slices.Equal(got, []float64{20, 30}) {
		t.Errorf("the steps that were done again are %v", got)
	}
	if got := m.rules(); !slices.Equal(got, []rule{{21, "#2"}}) {
		t.Errorf("the marks are %v", got)
	}
}

// TestLossesAreLogarithmic: the axis of the loss is logarithmic if the loss falls far, even if several attempts repeated steps.
func TestLossesAreLogarithmic(t *testing.T) {
	text := `{"attempt":1,"step":1,"loss":100,"lr":100}` + "\n"
	for attempt := range 3 {
		for step := 2 + attempt; step < 6+attempt; step++ {
			text += fmt.Sprintf(`{"attempt":%d,"step":%d,"loss":1,"lr":1}`+"\n", attempt+1, step)
		}
	}
	m := read(t, text)
	for i, want := range []string{"logarithmic", ""} { // the loss, and the learning rate
		figure := m.figures()[i]
		if figure.Note != want || strings.Count(string(figure.Picture), "lost") != 1 {
			t.Errorf("%s: %q, want %q: %s", figure.Title, figure.Note, want, figure.Picture)
		}
	}
}

// TestStragglersStandOut: each rank has a row. A rank is judged by its time without its waiting for others. If there are many ranks, those
// of a host share a row.
func TestStragglersStandOut(t *testing.T) {
	line := rundir.StepTimes{
		Time: noon, Attempt: 1, Step: 100, WindowS: 1, Hosts: []string{"a", "a", "b", "b"},
		StepS: rundir.Seconds{3, 3, 3, 3}, CommS: rundir.Seconds{2, 2, 0, 2},
		Stragglers: []rundir.Straggler{{Rank: 2, Host: "b", Times: 3, Part: rundir.PartCompute}},
	}
	s := stepTimesOf([]rundir.StepTimes{line, line})
	for i, want := range []float64{1, 1, 3, 1} {
		if row := s.Rows[i]; row.First != i || !slices.Equal(row.Times, []float64{want, want}) {
			t.Errorf("the row of rank %d is %+v", i, row)
		}
	}
	if picture := string(s.heatMap()); !strings.Contains(picture, `class="tick end hot" x="144" y="43.5">rank 2 b</text>`) ||
		strings.Count(picture, `class="h4"`) != 1 {
		t.Errorf("the picture is %s", picture)
	}
	if got := s.Slow[0].String(); got != "rank 2 on b takes 3.0 times as long for a step as the median of the ranks (compute), in 2 of 2 "+
		"windows, from step 100 to 100" {
		t.Errorf("it says %q", got)
	}
	var hosts []string
	for rank := range 4096 {
		hosts = append(hosts, fmt.Sprintf("n%d", rank/8))
	}
	rows := rowsOf(4096, hosts)
	next := 0
	for _, row := range rows {
		if row.First != next {
			t.Errorf("after rank %d comes %d", next, row.First)
		}
		next = row.Last + 1
	}
	if len(rows) > maxRows || next != 4096 {
		t.Errorf("%d rows of %d ranks", len(rows), next)
	}
}
