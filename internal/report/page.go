package report

import (
	"cmp"
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

// Marker is in the first 200 bytes of each page, and says what it is.
const Marker = `<meta name="generator" content="ddpbatch report">`

// page is what the template is filled with.
type page struct {
	*Data
	Marker, Styles any // HTML and CSS of ours
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

// fact is a number at the head of the page.
type fact struct{ Name, Value string }

// attemptRow is an attempt in the table of attempts.
type attemptRow struct {
	*Attempt
	Bar         template.HTML
	Kind, Lasts string
}

// table is that of an array's elements.
type table struct {
	Heading []string
	Rows    [][]string
	More    int // elements that it has no row for
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

// at is a moment, where the page is made; empty where it is not known.
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

// seconds is a length of time for a person; empty where it is not known.
func seconds(s *float64) string {
	switch {
	case s == nil:
		return ""
	case *s < 10:
		return strconv.FormatFloat(*s, 'g', 2, 64) + " s"
	}
	return text.Span(time.Duration(min(*s, 1e9) * float64(time.Second)))
}

// baseName is the last part of a path.
func baseName(path string) string { return shown(path[strings.LastIndexByte(path, '/')+1:]) }

// word is a class of the style sheet for a state, as of a job or a checkpoint.
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

// facts are the numbers at the head.
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
		add("running", text.Span(g.Running()))
		if share, ok := g.Share(g.Running()); ok {
			add("goodput", goodput.Percent(share))
		}
	}
	return all
}

// last is a metric's newest value; ok: it has one.
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

// table is for the page.
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
		if r.Index < 0 { // elements that Slurm alone can tell
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
		t.Rows = append(t.Rows, append(cells, r.State, strconv.Itoa(r.Attempt), step, metric, shown(cmp.Or(r.Next, r.Reason, r.Message))))
	}
	return t
}

// Detail is what there is to say of an event, for its row.
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
