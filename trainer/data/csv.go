package data

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/text"
)

// Limits of a CSV file.
const (
	maxCSVColumns = 1 << 20
	maxCSVValues  = 1<<31 - 1 // 8 GiB of float32
	maxClasses    = 1 << 20   // the outputs of a model
	fewClasses    = 1 << 16   // a file may have as many classes even with fewer rows
	maxCSVLine    = 64 << 20  // bytes: more than twice what numpy.savetxt writes for maxCSVColumns
	maxCSVCell    = 4 << 10   // bytes: an exact float64 has up to 1077
)

// CSVConfig describes how to read a CSV file.
type CSVConfig struct {
	Path      string
	Delimiter string // one byte between cells; empty: a comma
	Header    string // whether the first line holds names: "yes", "no", or "auto", also as "": yes if none of its cells is a number

	// Targets are the columns to learn, by name or by number: from 0, or negative from the last, which is -1. None: the last. The
	// other columns are the inputs, in their order.
	Targets []string

	// Regression reads targets as numbers. Otherwise there is one target, whose cells are classes: whole numbers
	// from 0. The number of classes is the largest one plus 1; the largest must be below 65536 or the number of rows.
	Regression bool
}

// LoadCSV reads a table of numbers. Cells are decimal numbers, which are rounded to float32, with spaces around them or in double
// quotes; empty lines are skipped. A cell that is missing, not a number, NaN or infinite is an error
// with file:line:column, with the column counted in bytes. With a cache the file is parsed once a node.
func LoadCSV(ctx context.Context, cache *Cache, cfg CSVConfig) (_ Dataset, err error) {
	defer reading(&err, "csv")
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	look := func() (source, error) { return fileSource(cfg.Path, "csv "+cfg.settings()) }
	p, err := cache.load(ctx, look, func() (*prepared, error) {
		m, err := openMapping(cfg.Path)
		if err != nil {
			return nil, err
		}
		return parseCSV(ctx, m, cfg)
	})
	if err != nil {
		return nil, err
	}
	return p.table(cfg.Regression)
}

// Validate returns every fault of cfg that is visible without the file, joined. Each begins with the name of the setting in a job file.
func (cfg CSVConfig) Validate() error {
	var wrong []error
	if d := cfg.Delimiter; len(d) > 1 || strings.ContainsAny(d, "\"\r\n+-.") || isAlphanumeric(d) {
		wrong = append(wrong, fmt.Errorf("delimiter: is %s, want one byte that is in no number or name", redact.Quoted(d, redact.Shown)))
	}
	if headers := []string{"auto", "yes", "no"}; cfg.Header != "" && !slices.Contains(headers, cfg.Header) {
		wrong = append(wrong, fmt.Errorf("header: is %s, want %s", redact.Quoted(cfg.Header, redact.Shown), text.Choice(headers)))
	}
	if !cfg.Regression && len(cfg.Targets) > 1 {
		wrong = append(wrong, fmt.Errorf("target: names %d columns, but classes must be in one column", len(cfg.Targets)))
	}
	for i, name := range cfg.Targets {
		if slices.Contains(cfg.Targets[:i], name) {
			wrong = append(wrong, fmt.Errorf("target: names %s twice", redact.Quoted(name, redact.Shown)))
			break
		}
	}
	return errors.Join(wrong...)
}

func isAlphanumeric(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r > 126
	})
}

// checkClasses refuses a large number of classes that results from a single large label: the model has an output for each.
func checkClasses(classes, rows int) error {
	if classes <= max(rows, fewClasses) {
		return nil
	}
	return fmt.Errorf("the largest label of %d rows is %d, and a model has an output for each class: "+
		"number the classes from 0, without gaps",
		rows, classes-1)
}

// settings are part of the name of prepared files. "classes=0" stays in it so that existing files remain valid.
func (cfg CSVConfig) settings() string {
	return fmt.Sprintf("delimiter=%q header=%q targets=%q regression=%v classes=0", cfg.Delimiter, cfg.Header, cfg.Targets, cfg.Regression)
}

// table returns the data set of prepared inputs and targets. It checks them again, because a wrong value could do more harm than a wrong
// result.
func (p *prepared) table(regression bool) (Dataset, error) {
	want := byte(kindInts)
	if regression {
		want = kindFloats
	}
	a := p.Arrays
	if len(a) != 2 || a[0].kind != kindFloats || a[1].kind != want || len(a[0].dims) != 2 || len(a[1].dims) != 2 ||
		a[0].dims[0] != a[1].dims[0] || !regression && a[1].dims[1] != 1 {
		return nil, errors.New("prepared data does not have the arrays of a table")
	}
	t := &table{
		spec:  Spec{Inputs: a[0].dims[1]},
		rows:  a[0].dims[0],
		x:     floats{numbersOf[float32](a[0].bytes), a[0].dims[1]},
		files: []*mapping{p.file},
	}
	if regression {
		t.spec.Outputs = a[1].dims[1]
		t.y = numbersOf[float32](a[1].bytes)
		return t, nil
	}
	t.spec.Classes, t.spec.Labels = p.Classes, 1
	t.labels = numbersOf[int32](a[1].bytes)
	for _, label := range t.labels {
		if label < 0 || int(label) >= p.Classes {
			return nil, errors.New("prepared data holds a label that is out of range")
		}
	}
	return t, nil
}

// csvParser converts the lines of a CSV file to numbers.
type csvParser struct {
	cfg    CSVConfig
	lines  csvLines
	names  []string // of the columns, if there is a header
	width  int      // cells of a line
	target []int    // for each column the number of its target, or -1 for an input
	rows   int
	x, y   []float32
	labels []int32
	most   int32 // the largest label
}

// parseCSV parses a whole file.
func parseCSV(ctx context.Context, m *mapping, cfg CSVConfig) (*prepared, error) {
	defer runtime.KeepAlive(m)
	p := csvParser{cfg: cfg, lines: newCSVLines(m.bytes, cfg.Delimiter)}
	for {
		cells, err := p.lines.next(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%w", cfg.Path, err)
		}
		if cells == nil {
			break
		}
		if err := p.add(cells); err != nil {
			return nil, fmt.Errorf("%s:%d:%w", cfg.Path, p.lines.line, err)
		}
	}
	if p.rows == 0 {
		return nil, fmt.Errorf("%s holds no rows", cfg.Path)
	}
	if err := checkClasses(int(p.most)+1, p.rows); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Path, err)
	}
	return p.prepared(), nil
}

func (p *csvParser) prepared() *prepared {
	outputs := max(1, len(p.cfg.Targets))
	x := newArray(p.x, p.rows, p.width-outputs)
	if p.cfg.Regression {
		return &prepared{Arrays: []array{x, newArray(p.y, p.rows, outputs)}}
	}
	return &prepared{Classes: int(p.most) + 1, Arrays: []array{x, newArray(p.labels, p.rows, 1)}}
}

// add parses the next line, which may be the header. Errors begin with the column.
func (p *csvParser) add(cells []cell) error {
	if p.target == nil {
		header := p.isHeader(cells)
		if header {
			for _, c := range cells {
				p.names = append(p.names, string(c.text))
			}
		}
		p.width = len(cells)
		if err := p.findTargets(); err != nil {
			return fmt.Errorf("1: %w", err)
		}
		if header {
			return nil
		}
	}
	if len(cells) != p.width {
		return fmt.Errorf("1: %d cells, but the lines before have %d", len(cells), p.width)
	}
	if (p.rows+1)*p.width > maxCSVValues {
		return fmt.Errorf("1: more than %d values", maxCSVValues)
	}
	outputs := len(p.y)
	if p.cfg.Regression {
		p.y = append(p.y, make([]float32, max(1, len(p.cfg.Targets)))...)
	}
	for j, c := range cells {
		if err := p.addCell(c, p.target[j], p.y[outputs:]); err != nil {
			return fmt.Errorf("%d: %w%s", c.column, err, p.inColumn(j))
		}
	}
	p.rows++
	return nil
}

func (p *csvParser) addCell(c cell, target int, y []float32) error {
	if target >= 0 && !p.cfg.Regression {
		return p.addLabel(c.text)
	}
	v, err := parseNumber(c.text)
	if target >= 0 {
		y[target] = v
	} else {
		p.x = append(p.x, v)
	}
	return err
}

func (p *csvParser) addLabel(text []byte) error {
	if _, err := parseNumber(text); err != nil {
		return err
	}
	label, ok := parseWhole(text)
	if !ok || label >= maxClasses {
		return fmt.Errorf("%s is not a class: want a whole number from 0 to %d, or regression", excerpt(text), maxClasses-1)
	}
	p.labels = append(p.labels, int32(label))
	p.most = max(p.most, int32(label))
	return nil
}

// inColumn returns the name of column j for an error, if it has a name.
func (p *csvParser) inColumn(j int) string {
	if p.names == nil {
		return ""
	}
	return fmt.Sprintf(" (in column %s)", excerpt([]byte(p.names[j])))
}

// isHeader reports whether the first line holds names. A line with a word among numbers is a row with a fault, which must
// not be mistaken for a header.
func (p *csvParser) isHeader(cells []cell) bool {
	switch p.cfg.Header {
	case "yes":
		return true
	case "no":
		return false
	}
	return !slices.ContainsFunc(cells, func(c cell) bool {
		_, err := parseNumber(c.text)
		return err == nil
	})
}

// findTargets determines the role of every column.
func (p *csvParser) findTargets() error {
	targets := p.cfg.Targets
	if len(targets) == 0 {
		targets = []string{"-1"}
	}
	if len(targets) >= p.width {
		return fmt.Errorf("%d columns leave no inputs beside %d targets: is the delimiter %q?", p.width, len(targets), p.lines.delimiter)
	}
	p.target = slices.Repeat([]int{-1}, p.width)
	for i, name := range targets {
		j, err := p.column(name)
		if err != nil {
			return err
		}
		if p.target[j] >= 0 {
			return fmt.Errorf("target %q is named twice", name)
		}
		p.target[j] = i
	}
	return nil
}

// column returns the number of the column with that name, or, if there is none, with that number.
func (p *csvParser) column(name string) (int, error) {
	if j := slices.Index(p.names, name); j >= 0 {
		if slices.Contains(p.names[j+1:], name) {
			return 0, fmt.Errorf("two columns have the name %q of the target: give its number", name)
		}
		return j, nil
	}
	j, err := strconv.Atoi(name)
	if err != nil {
		return 0, fmt.Errorf("no column %q for the target; the header is %.200s", name, fmt.Sprintf("%q", p.names))
	}
	if j < -p.width || j >= p.width {
		return 0, fmt.Errorf("no column %d for the target: the file has %d", j, p.width)
	}
	if j < 0 {
		j += p.width
	}
	return j, nil
}
