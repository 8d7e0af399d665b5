package data

import (
	"context"
	"errors"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestLoadCSV(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		cfg    CSVConfig
		spec   Spec
		x, y   []float32
		labels []int
	}{
		"classes, no header": {
			text: "1,2.5,0\n-3,4e1,2\n",
			spec: Spec{Inputs: 2, Classes: 3, Labels: 1}, x: []float32{1, 2.5, -3, 40}, labels: []int{0, 2},
		},
		"a header, CRLF, quotes, spaces, an empty line, Excel's mark, no newline at the end": {
			text: "\xef\xbb\xbf\"a \"\"1\"\"\", b ,\"label\"\r\n\"1\", 2 ,1\r\n\r\n0,\"4\" ,3",
			cfg:  CSVConfig{Targets: []string{`a "1"`}},
			spec: Spec{Inputs: 2, Classes: 2, Labels: 1}, x: []float32{2, 1, 4, 3}, labels: []int{1, 0},
		},
		"a target by name": {
			text: "label,a,b\n1,.5,-0\n0,7.,+3\n", cfg: CSVConfig{Targets: []string{"label"}},
			spec: Spec{Inputs: 2, Classes: 2, Labels: 1}, x: []float32{.5, 0, 7, 3}, labels: []int{1, 0},
		},
		"a target by number": {
			text: "1,5,6\n0,7,8\n", cfg: CSVConfig{Targets: []string{"0"}},
			spec: Spec{Inputs: 2, Classes: 2, Labels: 1}, x: []float32{5, 6, 7, 8}, labels: []int{1, 0},
		},
		"labels as pandas writes whole floats": {
			text: "1,1.0\n2,3.0\n",
			spec: Spec{Inputs: 1, Classes: 4, Labels: 1}, x: []float32{1, 2}, labels: []int{1, 3},
		},
		"labels as numpy.savetxt and others write them": {
			text: "1,0\n1,3.000000000000000000e+00\n1,-0.0\n1,+2.\n1,.1E1\n1,0e-99999\n1,400e-2\n1,007\n",
			spec: Spec{Inputs: 1, Classes: 8, Labels: 1}, x: slices.Repeat([]float32{1}, 8), labels: []int{0, 3, 0, 2, 1, 0, 4, 7},
		},
		"two outputs, in the order of the targets": {
			text: "a\tb\tc\n1\t2\t3\n4\t5\t6\n", cfg: CSVConfig{Delimiter: "\t", Targets: []string{"c", "0"}, Regression: true},
			spec: Spec{Inputs: 1, Outputs: 2}, x: []float32{2, 5}, y: []float32{3, 1, 6, 4},
		},
		"a header of numbers": {
			text: "0,1\n5,1\n", cfg: CSVConfig{Header: "yes"},
			spec: Spec{Inputs: 1, Classes: 2, Labels: 1}, x: []float32{5}, labels: []int{1},
		},
		"a column whose name is a number": {
			text: "x,0\n5,1\n", cfg: CSVConfig{Header: "yes", Targets: []string{"0"}},
			spec: Spec{Inputs: 1, Classes: 2, Labels: 1}, x: []float32{5}, labels: []int{1},
		},
		"rounded once, to the nearest float32": {
			// The number is a little more than half a unit above 1. Rounded to float64 first, it would be halfway and go to the even 1.
			text: "1.00000005960464477539062500000000000001,0\n",
			spec: Spec{Inputs: 1, Classes: 1, Labels: 1}, x: []float32{1.0000001}, labels: []int{0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Path = writeFile(t, "data.csv", []byte(c.text))
			set, err := LoadCSV(t.Context(), nil, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			got := all(set)
			if set.Spec() != c.spec || !slices.Equal(got.X, c.x) || !slices.Equal(got.Y, c.y) || !slices.Equal(got.Labels, c.labels) {
				t.Errorf("%+v with %v, %v, %v", set.Spec(), got.X, got.Y, got.Labels)
			}
		})
	}
}

func TestLoadCSVRefusesBadTables(t *testing.T) {
	for _, c := range []struct {
		text string
		cfg  CSVConfig
		want string
	}{
		{"", CSVConfig{}, "data.csv holds no rows"},
		{"a,b\n", CSVConfig{}, "data.csv holds no rows"},
		{"1,2\n3,,1\n", CSVConfig{}, "data.csv:2:1: 3 cells, but the lines before have 2"},
		{"1,2,0\n\n3,,1\n", CSVConfig{}, "data.csv:3:3: the cell is missing"},
		{"1,2,0\n3,4,\n", CSVConfig{}, "data.csv:2:5: the cell is missing"},
		{"1,NaN,0\n", CSVConfig{}, `data.csv:1:3: "NaN" is not a finite number`},
		{"a,b,c\n1,-inf,0\n", CSVConfig{}, `data.csv:2:3: "-inf" is not a finite number (in column "b")`},
		{"a,b,c\r\n\r\n1,\" 2\",3\r\n", CSVConfig{}, `data.csv:3:3: " 2" is not a finite number (in column "b")`},
		{"1,0x1p4,0\n", CSVConfig{}, `"0x1p4" is not a finite number`},
		{"1,1e5e,0\n", CSVConfig{}, `"1e5e" is not a finite number`},
		{"1,4e38,0\n", CSVConfig{}, `data.csv:1:3: "4e38" is too large`},
		{"1,2,0.5\n", CSVConfig{}, `data.csv:1:5: "0.5" is not a class`},
		{"1,2,-1\n", CSVConfig{}, `data.csv:1:5: "-1" is not a class`},
		{"1,2,0.99999999999\n", CSVConfig{}, `data.csv:1:5: "0.99999999999" is not a class`},
		{"1,2,1.00000000000000000000000001\n", CSVConfig{}, "is not a class"},
		{"1,2,-0.00000000000000000000000001\n", CSVConfig{}, "is not a class"},
		{"1,2,1e-99999999999999999999\n", CSVConfig{}, "is not a class"},
		{"1,2,1048576\n", CSVConfig{}, "is not a class: want a whole number from 0 to 1048575"},
		{"1,2,-9223372036854775808\n", CSVConfig{}, "is not a class"},
		{"1,2,18446744073709551617\n", CSVConfig{}, "is not a class"},
		{"1,2,\n", CSVConfig{}, "data.csv:1:5: the cell is missing"},
		{"1,2,4e9\n", CSVConfig{}, `"4e9" is not a class`},
		{"0,1,target\n1,2,0\n", CSVConfig{}, `data.csv:1:5: "target" is not a finite number`},
		{"a,b\n1,2\n", CSVConfig{Header: "no"}, `data.csv:1:1: "a" is not a finite number`},
		{"a;b\n1;2\n", CSVConfig{}, `1 columns leave no inputs beside 1 targets: is the delimiter ','?`},
		{"a,b\n1,2\n", CSVConfig{Targets: []string{"c"}}, `no column "c" for the target; the header is ["a" "b"]`},
		{"a,b\n1,2\n", CSVConfig{Targets: []string{"2"}}, "no column 2"},
		{"a,b\n1,2\n", CSVConfig{Targets: []string{"-3"}}, "no column -3"},
		{"a,b,a\n1,2,3\n", CSVConfig{Targets: []string{"a"}}, "two columns have the name"},
		{"a,b,c\n1,2,3\n", CSVConfig{Targets: []string{"a", "0"}, Regression: true}, `target "0" is named twice`},
		{"1,\"2,3\n4\",5\n", CSVConfig{}, "data.csv:1:3: a quote is not closed"},
		{"1,\"2\"3,5\n", CSVConfig{}, "data.csv:1:6: text after a closing quote"},
		{strings.Repeat(",", maxCSVColumns), CSVConfig{}, "more than 1048576 cells"},
		{"1,2\n", CSVConfig{Targets: []string{"0", "1"}}, "classes must be in one column"},
		{"1,2\n", CSVConfig{Delimiter: "::"}, "delimiter"},
		{"1,2\n", CSVConfig{Delimiter: "e"}, "delimiter"},
		{"1,2\n", CSVConfig{Header: "maybe"}, `want "auto", "yes" or "no"`},
	} {
		c.cfg.Path = writeFile(t, "data.csv", []byte(c.text))
		if _, err := LoadCSV(t.Context(), nil, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want one with %q", c.text, err, c.want)
		}
	}
}

// FuzzLabel compares labels with those of exact rational numbers.
func FuzzLabel(f *testing.F) {
	for _, s := range []string{"0", "3.0", "-0", "1e0", "0.99999999999", "12.5e1", "1048576", "-1", "0e9999", "1e-400", ".",
		"9223372036854775807.0e-9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseNumber([]byte(text))
		// A rational of a large exponent would fill the memory.
		if i := strings.IndexAny(text, "eE"); err != nil || i >= 0 && len(text)-i > 5 {
			return
		}
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%q is a number", text)
		}
		n, ok := parseWhole([]byte(text))
		whole := want.IsInt() && want.Sign() >= 0 && want.Cmp(big.NewRat(maxClasses, 1)) <= 0
		if ok != whole || ok && want.Cmp(big.NewRat(int64(n), 1)) != 0 {
			t.Errorf("%q is %d, %v; want %v", text, n, ok, want)
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add("1,2,0\n3,4,1\n", ",", "", "", false)
	f.Add("a;\"b\"\"\";c\n1;2;3\r\n\n4;5;6", ";", "auto", "a", true)
	f.Add("\xef\xbb\xbf\"\t\n", "\t", "no", "-1", false)
	f.Fuzz(func(t *testing.T, file, delimiter, header, target string, regression bool) {
		cfg := CSVConfig{Delimiter: delimiter, Header: header, Regression: regression}
		if target != "" {
			cfg.Targets = []string{target}
		}
		if cfg.Validate() != nil {
			return
		}
		p, err := parseCSV(t.Context(), &mapping{[]byte(file)}, cfg)
		if err != nil {
			return
		}
		set, err := p.table(regression)
		if err != nil {
			t.Fatal(err)
		}
		spec := set.Spec()
		b := all(set)
		if set.Len() == 0 || set.Len() > strings.Count(file, "\n")+1 || len(b.X) == 0 || (spec.Outputs == 0) == (spec.Classes == 0) {
			t.Errorf("%d rows of %+v", set.Len(), spec)
		}
		for _, v := range append(b.X, b.Y...) {
			if v-v != 0 {
				t.Errorf("a value is %v", v)
			}
		}
		for _, label := range b.Labels {
			if label < 0 || label >= spec.Classes {
				t.Errorf("label %d of %d classes", label, spec.Classes)
			}
		}
	})
}

// BenchmarkCSV reads 100 columns of six digits each, as in a table of measurements.
func BenchmarkCSV(b *testing.B) {
	file := []byte(strings.Repeat(strings.Repeat("-12.3456,", 100)+"1\n", 1000))
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := parseCSV(b.Context(), &mapping{file}, CSVConfig{}); err != nil {
			b.Fatal(err)
		}
	}
}

// holeOf writes a sparse file that begins with text and continues with zero bytes up to size, and returns its path.
func holeOf(t *testing.T, dir, name, text string, size int64) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64) // other work of the process only adds to the count
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// A sparse table, or a cell that is too long, is refused without much memory, whatever the size of the file.
func TestSparseTableIsCheap(t *testing.T) {
	const size = 1 << 30
	quoted := "1,\"" + strings.Repeat("9", 4096) + "9\",0\n"
	for name, c := range map[string]struct{ text, header, want string }{
		"nothing but a hole":       {"", "auto", "t.csv:1:1: a line of more than 64 MiB"},
		"a hole for a header":      {"", "yes", "t.csv:1:1: a line of more than 64 MiB"},
		"a hole after rows":        {"1,2,0\n\n1,2,0\n", "auto", "t.csv:4:1: a line of more than 64 MiB"},
		"a hole in quotes":         {"1,\"", "auto", "t.csv:1:1: a line of more than 64 MiB"},
		"a long number":            {"1," + strings.Repeat("9", 4097) + ",0\n", "auto", "t.csv:1:3: a cell of more than 4096 bytes"},
		"a long number in quotes":  {quoted, "auto", "t.csv:1:3: a cell of more than 4096 bytes"},
		"a long number as a class": {"1,0" + strings.Repeat("0", 4096) + "\n", "auto", "t.csv:1:3: a cell of more than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := holeOf(t, t.TempDir(), "t.csv", c.text, size)
			var err error
			got := allocated(func() { _, err = LoadCSV(t.Context(), nil, CSVConfig{Path: path, Header: c.header}) })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if got > 1<<20 {
				t.Errorf("%d bytes allocated, want at most 1 MiB", got)
			}
		})
	}
}

// The longest allowed cell and the widest allowed table, as numpy.savetxt writes it, are read.
func TestLongestCellIsRead(t *testing.T) {
	text := "1." + strings.Repeat("0", maxCSVCell-2) + ",0\n" + strings.Repeat(" ", maxCSVCell+1) + "2,1\n"
	set, err := LoadCSV(t.Context(), nil, CSVConfig{Path: writeFile(t, "t.csv", []byte(text))})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(set).X; len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("inputs %v, want 1 and 2", got)
	}
	wide := strings.Repeat("-1.234567890123456789e-101,", maxCSVColumns-1) + "0\n"
	lines := newCSVLines([]byte(wide), "")
	if cells, err := lines.next(t.Context()); err != nil || len(cells) != maxCSVColumns {
		t.Errorf("%d cells, error %v; want %d", len(cells), err, maxCSVColumns)
	}
}

// endsAt is a context whose Err returns context.Canceled from call number at on.
type endsAt struct {
	context.Context
	asked, at int
}

func (c *endsAt) Err() error {
	if c.asked++; c.asked >= c.at {
		return context.Canceled
	}
	return nil
}

// A stop ends the reading of many empty lines, and of one large file of a tree.
func TestStopEndsReading(t *testing.T) {
	lines := newCSVLines([]byte(strings.Repeat("\n", 4*betweenLooks)+"1,2\n"), "")
	cells, err := lines.next(&endsAt{t.Context(), 0, 2})
	if !errors.Is(err, context.Canceled) || cells != nil || len(lines.rest) < betweenLooks {
		t.Errorf("empty lines: %d cells, %d bytes left, error %v", len(cells), len(lines.rest), err)
	}
	text := strings.Repeat("text", betweenLooks)
	b := make([]byte, len(text))
	err = readExactly(&endsAt{t.Context(), 0, 3}, writeFile(t, "text", []byte(text)), b)
	if !errors.Is(err, context.Canceled) || b[0] != 't' || b[len(b)-1] != 0 {
		t.Errorf("a tree's file: error %v, its last byte %d", err, b[len(b)-1])
	}
}
