package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var styles string

// Marker is in the first 200 bytes of each page, and identifies it as a report.
const Marker = `<meta name="generator" content="ddpbatch report">`

// page is the data of the template.
type page struct {
	*Data
	Marker, Styles any // our own HTML and CSS
	Policy         string
	Facts          []fact
	Figures        []Figure
	Timeline       []attemptRow
	From, To       string
	Times          *Figure
	Heat           template.HTML
	Shares         []share
	Stack          template.HTML
	Table          *table
	SavesNote      string
}

// fact is a number at the top of the page.
type fact struct{ Name, Value string }

// attemptRow is a row in the table of attempts.
type attemptRow struct {
	*Attempt
	Bar         template.HTML
	Kind, Lasts string
}

// table is the table of an array's elements.
type table struct {
	Heading []string
	Rows    [][]string
	More    int // number of elements without a row
}

// Write writes the page.
func (d *Data) Write(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"at": d.at, "bytes": func(n int64) string { return text.Bytes(uint64(max(0, n))) }, "commas": commas, "seconds": seconds,
		"clean": shown, "lines": func(s string) string { return text.CleanLines(s) }, "plural": plural, "base": baseName, "word": word,
		"span": text.Span, "names": func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }, "join": strings.Join,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	hash := sha256.Sum256([]byte(styles))
	p := page{
		Data: d, Marker: template.HTML(Marker), Styles: template.CSS(styles),
		Policy: "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
			"'",
		Facts: d.facts(), Figures: d.Metrics.figures(),
	}
	p.addTimeline()
	if d.Steps != nil {
		times := d.Steps.figure()
		p.Times, p.Heat = &times, d.Steps.heatMap()
	}
	if d.Goodput != nil {
		p.Shares, p.Stack = shares(d.Goodput)
	}
	if d.Elements != nil {
		p.Figures, p.Table = d.Elements.figures(), d.Elements.table()
	}
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func (p *page) addTimeline() {
	from, to := p.span()
	if !from.IsZero() {
		p.From, p.To = p.at(from), p.at(to)
	}
	for i := range p.Attempts {
		a := &p.Attempts[i]
		row := attemptRow{Attempt: a, Bar: p.bar(a, from, to), Kind: p.kind(a)}
		if a.Began != nil {
			lasted := max(0, p.until(a).Sub(*a.Began).Seconds())
			row.Lasts = seconds(&lasted)
		}
		p.Timeline = append(p.Timeline, row)
	}
}

// at formats a time in the local time zone. It returns "" for a zero time.
func (d *Data) at(moment any) string {
	var t time.Time
	switch m := moment.(type) {
	case time.Time:
		t = m
	case *time.Time:
		if m != nil {
			t = *m
		}
	}
	if t.IsZero() || t.Year() <= 1 {
		return ""
	}
	return t.In(d.Made.Location()).Format(time.DateTime)
}

// seconds formats a duration for people. It returns "" for nil.
func seconds(s *float64) string {
	switch {
	case s == nil:
		return ""
	case *s < 10:
		return strconv.FormatFloat(*s, 'g', 2, 64) + " s"
	}
	return text.Span(time.Duration(min(*s, 1e9) * float64(time.Second)))
}

// baseName returns the last element of a path.
func baseName(path string) string { return shown(path[strings.LastIndexByte(path, '/')+1:]) }

// word returns the class of the style sheet for the state of a job or checkpoint.
func word(state string) string {
	switch state {
	case "COMPLETED", "committed":
		return "good"
	case "RUNNING", "COMPLETING", "SIGNALING":
		return "live"
	case "PENDING", "CANCELLED", "PREEMPTED", "SUSPENDED", "SAVED", "TIMEOUT", "SUBMITTING", "partial", "superseded", "newer":
		return "calm"
	case "UNKNOWN", "UNSUBMITTED":
		return "unsaid"
	}
	return "wrong"
}

// facts returns the numbers at the top of the page.
func (d *Data) facts() (all []fact) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	s := &d.Status
	if s.Step != nil {
		step := commas(*s.Step)
		if s.Steps != nil && *s.Steps > 0 {
			step += " of " + commas(*s.Steps)
		}
		add("step", step)
	}
	if s.Loss != nil {
		add("loss", short(*s.Loss))
	}
	for _, name := range []string{"eval_loss", "accuracy"} {
		if value, ok := d.Metrics.last(name); ok {
			add(name, (plot{percent: name == "accuracy"}).label(value))
		}
	}
	if s.Speed != nil {
		add("samples/s", short(*s.Speed))
	} else if value, ok := d.Metrics.last("samples_per_s"); ok {
		add("samples/s, last", short(value))
	}
	if s.Attempt > 0 {
		add("attempts", strconv.Itoa(s.Attempt))
	}
	if g := d.Goodput; g != nil {
		name := "ran"
		if s.State == "RUNNING" {
			name = "running"
		}
		add(name, text.Span(g.Running()))
		if share, ok := g.Share(g.Running()); ok {
			add("goodput", goodput.Percent(share))
		}
	}
	return all
}

// last returns a metric's newest value. ok is false if it has none.
func (m *Metrics) last(name string) (value float64, ok bool) {
	for _, c := range m.Curves {
		if c.Name != name {
			continue
		}
		points := c.Parts[len(c.Parts)-1].Points
		if mean := points[len(points)-1].Mean; mean != nil {
			return *mean, true
		}
	}
	return 0, false
}

// table returns the table for the page.
func (e *Elements) table() *table {
	t := &table{Heading: []string{"index"}}
	for _, column := range e.Columns {
		t.Heading = append(t.Heading, shown(column))
	}
	t.Heading = append(t.Heading, "state", "attempt", "step", e.Metric, "note")
	for i, r := range e.Rows {
		if i == maxTableLines {
			t.More = len(e.Rows) - i
			break
		}
		cells := []string{strconv.Itoa(r.Index)}
		if r.Index < 0 { // elements of which only Slurm knows
			cells[0] = shown(r.Job)
		}
		for _, value := range r.Shown {
			cells = append(cells, text.Shortened(value, 60))
		}
		step, metric := "", ""
		if r.Step != nil {
			step = commas(*r.Step)
		}
		if r.Metric != nil {
			metric = short(*r.Metric)
		}
		t.Rows = append(t.Rows, append(cells, r.State, strconv.Itoa(r.Attempt), step, metric, shown(r.Why())))
	}
	return t
}

// Detail describes an event, for its row.
func (d *Data) Detail(e rundir.Event) string {
	parts := []string{e.Cause, e.Detail}
	if e.Node != "" {
		parts = append(parts, "on "+e.Node)
	}
	if e.Step > 0 {
		parts = append(parts, "step "+commas(e.Step))
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return shown(strings.Join(parts, "; "))
}
