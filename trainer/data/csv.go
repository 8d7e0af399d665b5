package data

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Limits of a CSV file.
const (
	maxCSVColumns = 1 << 20
	maxCSVValues  = 1<<31 - 1 // 8 GiB of float32
	maxClasses    = 1 << 20   // the outputs of a model
	fewClasses    = 1 << 16   // as many a file may have whose rows are fewer
	maxCSVLine    = 64 << 20  // bytes: more than twice what numpy.savetxt writes of as many columns
	maxCSVCell    = 4 << 10   // bytes: an exact float64 has up to 1077
)

// CSVConfig says how a CSV file is read.
type CSVConfig struct {
	Path      string
	Delimiter string // one byte between cells; "": a comma
	Header    string // whether the first line holds names: "yes", "no" or, also as "", "auto": yes if none of its cells is a number

	// Targets are the columns to learn, by name or by number from 0 on, or from -1 back. None: the last. The
	// others are inputs, in their order.
	Targets []string

	// Regression takes targets as numbers. Otherwise there is one target, whose cells are classes: whole numbers
	// from 0 on.
	Regression bool
	Classes    int // labels must be below it; 0: one more than the largest of the file, which then is below 65536 or the number of rows
}

// LoadCSV reads a table of numbers. Cells are decimal numbers, rounded to float32, with spaces around them or in double
// quotes; empty lines are passed over. A cell that is missing, no number, NaN or infinite is an error
// with file:line:column, the column counted in bytes. With a cache the file is parsed once a node.
func LoadCSV(ctx context.Context, cache *Cache, cfg CSVConfig) (Dataset, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("read csv: %w", err)
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
		return nil, fmt.Errorf("read csv: %w", err)
	}
	t, err := p.table(cfg.Regression)
	if err != nil {
		return nil, fmt.Errorf("read csv: %w", err)
	}
	return t, nil
}

func (cfg CSVConfig) check() error {
	if d := cfg.Delimiter; len(d) > 1 || strings.ContainsAny(d, "\"\r\n+-.") || isAlphanumeric(d) {
		return fmt.Errorf("the delimiter %q must be one byte that is in no number or name", d)
	}
	switch cfg.Header {
	case "", "auto", "yes", "no":
	default:
		return fmt.Errorf("header is %q, want auto, yes or no", cfg.Header)
	}
	if !cfg.Regression && len(cfg.Targets) > 1 {
		return fmt.Errorf("%d targets; classes stand in one column", len(cfg.Targets))
	}
	if cfg.Classes < 0 || cfg.Classes > maxClasses || cfg.Regression && cfg.Classes != 0 {
		return fmt.Errorf("%d classes, want 1 to %d, or 0 for as many as there are, and 0 for regression", cfg.Classes, maxClasses)
	}
	return nil
}

func isAlphanumeric(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r > 126
	})
}

// checkClasses refuses classes that a file has chosen by one large label: the model has an output for each.
func checkClasses(classes, rows int) error {
	if classes <= max(rows, fewClasses) {
		return nil
	}
	return fmt.Errorf("the largest label of %d rows is %d, and a model has an output for each class: "+
		"number the classes from 0 on, without gaps",
		rows, classes-1)
}

func (cfg CSVConfig) settings() string {
	return fmt.Sprintf("delimiter=%q header=%q targets=%q regression=%v classes=%d",
		cfg.Delimiter, cfg.Header, cfg.Targets, cfg.Regression, cfg.Classes)
}

// table is the data set of prepared inputs and targets, checked again where a wrong value would be more than a wrong
// result.
func (p *prepared) table(regression bool) (*table, error) {
	want := byte(kindInts)
	if regression {
		want = kindFloats
	}
	a := p.Arrays
	if len(a) != 2 || a[0].kind != kindFloats || a[1].kind != want || len(a[0].dims) != 2 || len(a[1].dims) != 2 ||
		a[0].dims[0] != a[1].dims[0] || !regression && a[1].dims[1] != 1 {
		return nil, errors.New("prepared data has other arrays than a table has")
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
