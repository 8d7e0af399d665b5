package data

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
)

// csvParser turns the lines of a CSV file into numbers.
type csvParser struct {
	cfg    CSVConfig
	lines  csvLines
	names  []string // of the columns, if there is a header
	width  int      // cells of a line
	target []int    // for each column the target that it is, -1 for an input
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
	if err := checkClasses(int(p.most)+1, p.rows); err != nil && cfg.Classes == 0 {
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
	classes := p.cfg.Classes
	if classes == 0 {
		classes = int(p.most) + 1
	}
	return &prepared{Classes: classes, Arrays: []array{x, newArray(p.labels, p.rows, 1)}}
}

// add takes the next line, which may be the header. Errors begin with the column.
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
		return fmt.Errorf("1: %d cells, where the lines before have %d", len(cells), p.width)
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
	classes := p.cfg.Classes
	if classes == 0 {
		classes = maxClasses
	}
	label, ok := parseWhole(text)
	if !ok || label >= classes {
		return fmt.Errorf("%s is no class: want a whole number from 0 to %d, or regression", excerpt(text), classes-1)
	}
	p.labels = append(p.labels, int32(label))
	p.most = max(p.most, int32(label))
	return nil
}

// inColumn names column j for an error, where it has a name.
func (p *csvParser) inColumn(j int) string {
	if p.names == nil {
		return ""
	}
	return fmt.Sprintf(" (in column %s)", excerpt([]byte(p.names[j])))
}

// isHeader tells whether the first line holds names. A line in which a word stands among numbers is a row with a fault: it must
// not get lost as a header.
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

// findTargets says of every column what it is.
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

// column is the number of the column with that name, or else number.
func (p *csvParser) column(name string) (int, error) {
	if j := slices.Index(p.names, name); j >= 0 {
		if slices.Contains(p.names[j+1:], name) {
			return 0, fmt.Errorf("two columns have the name %q of the target: give its number", name)
		}
		return j, nil
	}
	j, err := strconv.Atoi(name)
	if err != nil {
		return 0, fmt.Errorf("there is no column %q for the target; the header is %.200s", name, fmt.Sprintf("%q", p.names))
	}
	if j < -p.width || j >= p.width {
		return 0, fmt.Errorf("there is no column %d for the target: there are %d", j, p.width)
	}
	if j < 0 {
		j += p.width
	}
	return j, nil
}
