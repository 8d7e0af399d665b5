package report

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"
)

const (
	maxRead   = 384 << 20 // bytes of a metrics file that are read
	readBlock = 256 << 10
	maxLine   = 1 << 20
)

// source is a metrics file.
type source struct {
	io.ReaderAt
	size int64
	most int64 // bytes of it to read at most, a multiple of readBlock
}

// lines calls take with each line, without its newline, and returns the number of bytes read. Of a file that is too long it reads evenly
// spaced blocks, including the first and the last. Lines longer than maxLine are passed as empty lines.
func (s source) lines(ctx context.Context, take func(line []byte)) (read int64, err error) {
	blocks, length := int64(1), s.size
	if s.size > s.most {
		blocks, length = s.most/readBlock, readBlock
	}
	for i := range blocks {
		n, err := s.section(ctx, i*(s.size-length)/max(1, blocks-1), length, take)
		read += n
		if err != nil {
			return read, err
		}
	}
	return read, nil
}

// section passes on the complete lines in a part of the file. The last line of the file may lack its newline.
func (s source) section(ctx context.Context, at, length int64, take func(line []byte)) (read int64, err error) {
	end := min(at+length, s.size)
	buffer := make([]byte, 0, readBlock+maxLine)
	skipping := at > 0 // skip the rest of a line that began before
	for at < end {
		if ctx.Err() != nil {
			return read, context.Cause(ctx)
		}
		begin := len(buffer)
		n, err := s.ReadAt(buffer[begin:begin+int(min(readBlock, end-at))], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return read, err
		}
		if n == 0 { // the file has become shorter
			break
		}
		buffer, at, read = buffer[:begin+n], at+int64(n), read+int64(n)
		rest := buffer
		for {
			line, after, whole := bytes.Cut(rest, []byte{'\n'})
			if !whole {
				break
			}
			switch {
			case len(line) > maxLine && !skipping:
				take(nil)
			case !skipping:
				take(line)
			}
			skipping, rest = false, after
		}
		if len(rest) > maxLine-1 { // leaves room for another block
			if !skipping {
				take(nil)
			}
			skipping, rest = true, nil
		}
		buffer = buffer[:copy(buffer[:cap(buffer)], rest)]
	}
	if len(buffer) > 0 && !skipping && at >= s.size {
		take(buffer)
	}
	return read, nil
}

// collector builds curves from lines.
type collector struct {
	only     func(name string) bool // nil: all metrics
	metrics  Metrics
	curves   []*curve
	byName   map[string]*curve // nil for names that are not curves
	order    []*curve          // the curve of each name of the previous line
	names    []string
	sections []Section // the newest sections; dropped earlier ones are removed
	dropped  int
	stepped  bool // a line with a step has been seen
	saves    map[int64]save

	// for the current line
	attempt, step, resumed, lineSave, lineStall float64
	time                                        []byte
	values                                      []lineValue
	field                                       int
}

type lineValue struct {
	curve *curve
	value float64
}

// collect reads a source.
func collect(ctx context.Context, s source, only func(name string) bool) (*collector, error) {
	c := &collector{only: only, byName: map[string]*curve{}, saves: map[int64]save{}}
	f := fields{number: c.number, text: c.text}
	read, err := s.lines(ctx, func(line []byte) {
		if len(bytes.TrimSpace(line)) == 0 && line != nil {
			return
		}
		c.metrics.Lines++
		c.attempt, c.step, c.resumed, c.lineSave, c.lineStall = 0, math.NaN(), math.NaN(), math.NaN(), math.NaN()
		c.time, c.values, c.field = nil, c.values[:0], 0
		if f.scan(line) {
			c.endLine()
		} else {
			c.metrics.Rubbish++
		}
	})
	c.metrics.Bytes, c.metrics.Read = s.size, read
	c.finish()
	return c, err
}

func (c *collector) text(name, value []byte) {
	if string(name) == "time" {
		c.time = value // in the line's buffer, which is valid until endLine
	}
}

func (c *collector) number(name []byte, value float64) {
	at := c.field
	c.field++
	if at >= len(c.names) || c.names[at] != string(name) {
		c.know(at, name)
	}
	if to := c.order[min(at, len(c.order)-1)]; to != nil {
		c.values = append(c.values, lineValue{to, value})
		return
	}
	switch string(name) {
	case "attempt":
		c.attempt = value
	case "step":
		c.step = value
	case "resume_step":
		c.resumed = value
	case "save_s":
		c.lineSave = value
	case "save_stall_s":
		c.lineStall = value
	}
}

// maxFields is the number of a line's fields for which the curve is remembered.
const maxFields = 100

// know looks up the curve of a field by its name, and remembers it.
func (c *collector) know(at int, name []byte) {
	at = min(at, maxFields)
	key := string(name[:min(len(name), maxName+1)]) // enough to recognize a name that is too long and left out
	found, known := c.byName[key]
	if !known {
		found = c.newCurve(key)
	}
	c.names = append(c.names[:min(at, len(c.names))], string(name))
	c.order = append(c.order[:min(at, len(c.order))], found)
}

// newCurve starts the curve of a metric. It returns nil if the metric is not drawn.
func (c *collector) newCurve(name string) *curve {
	switch {
	case plain(name):
		c.byName[name] = nil
		return nil
	case c.only != nil && !c.only(name):
		return nil
	case len(name) > maxName, len(c.curves) >= maxCurves && !usual(name):
		if c.metrics.Left < maxLeft {
			c.metrics.Left++
			c.byName[name] = nil
		}
		return nil
	}
	made := &curve{name: name}
	c.byName[name] = made
	c.curves = append(c.curves, made)
	return made
}

// endLine adds the values of the current line.
func (c *collector) endLine() {
	step, n := int64(c.metrics.Lines), len(c.sections)
	switch {
	case math.Abs(c.step) < 1<<53:
		step, c.stepped = int64(math.Floor(c.step)), true
	case c.stepped && n > 0: // the line belongs to the step before it
		step = c.sections[n-1].Last
	}
	attempt := 0
	if c.attempt >= 1 && c.attempt < 1<<30 {
		attempt = int(c.attempt)
	}
	if n == 0 || step < c.sections[n-1].Last || attempt != c.sections[n-1].Attempt {
		from := step
		if c.resumed >= 0 && c.resumed < float64(step) {
			from = int64(c.resumed) + 1
		}
		c.beginSection(Section{Attempt: attempt, First: step, Last: step, from: from})
		n = len(c.sections)
	}
	now := &c.sections[n-1]
	now.Last = step
	if at := c.moment(); !at.IsZero() {
		if now.Began.IsZero() {
			now.Began = at
		}
		now.Ended = at
	}
	for _, v := range c.values {
		v.curve.add(c.dropped+n-1, step, v.value)
	}
	if c.lineSave >= 0 && len(c.saves) < maxSaves {
		c.saves[step] = save{c.lineSave, c.lineStall}
	}
}

// moment returns the time of a line, or the zero Time if it has none.
func (c *collector) moment() time.Time {
	if len(c.time) == 0 {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, string(c.time))
	if err != nil {
		return time.Time{}
	}
	return at
}

func (c *collector) beginSection(s Section) {
	if len(c.sections) == maxSections {
		c.sections = slices.Delete(c.sections, 0, 1)
		c.dropped++
		for _, curve := range c.curves {
			curve.drop(c.dropped)
		}
	}
	c.sections = append(c.sections, s)
}

// finish converts the curves to the form that is shown.
func (c *collector) finish() {
	kept := int64(math.MaxInt64)
	for i := len(c.sections) - 1; i >= 0; i-- {
		s := &c.sections[i]
		s.Kept = min(kept, s.Last+1)
		kept = min(kept, s.from)
	}
	c.metrics.Sections = append([]Section{}, c.sections...)
	c.metrics.Curves = []Curve{}
	for _, curve := range c.curves {
		made := Curve{Name: curve.name}
		for _, part := range curve.parts {
			points := make([]Point, len(part.buckets))
			for i := range part.buckets {
				points[i] = part.buckets[i].point()
			}
			made.Parts = append(made.Parts, CurvePart{Section: part.section - c.dropped, Points: points})
		}
		if len(made.Parts) > 0 {
			c.metrics.Curves = append(c.metrics.Curves, made)
		}
	}
}
