package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func mustGenerate(t testing.TB, cfg GeneratedConfig) Dataset {
	t.Helper()
	d, err := Generate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// writeFile writes b to a file of the given name in a new folder, and returns its path.
func writeFile(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func all(d Dataset) *Batch {
	rows := make([]int, d.Len())
	for i := range rows {
		rows[i] = i
	}
	var b Batch
	b.Fill(d, rows)
	return &b
}

func TestFillReusesMemory(t *testing.T) {
	d := mustGenerate(t, GeneratedConfig{Rows: 10, Inputs: 3, Outputs: 2})
	whole := all(d)
	var b Batch
	b.Fill(d, []int{1, 2, 3, 4})
	if n := testing.AllocsPerRun(100, func() { b.Fill(d, []int{9, 0}) }); n != 0 {
		t.Errorf("a smaller batch allocates %v times", n)
	}
	if want := slices.Concat(whole.X[27:30], whole.X[:3]); b.Rows != 2 || !slices.Equal(b.X, want) {
		t.Errorf("rows 9 and 0 are %v, want %v", b.X, want)
	}
}

func TestParseRange(t *testing.T) {
	for text, want := range map[string]Range{"0:9000": {0, 9000}, "9000:10000": {9000, 10000}, "0:1": {0, 1}} {
		got, err := ParseRange(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %v, error %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                       "FIRST:END",
		"9000":                   "FIRST:END",
		":9000":                  `""`,
		"1:":                     `""`,
		"1:2:3":                  `"2:3"`,
		"-1:5":                   `"-1"`,
		"+1:5":                   `"+1"`,
		"1:5x":                   `"5x"`,
		"0:99999999999999999999": "row number",
		"5:5":                    "empty",
		"5:1":                    "empty",
	} {
		if r, err := ParseRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, error %v; want an error with %s", text, r, err, want)
		}
	}
}

func TestSubset(t *testing.T) {
	d := mustGenerate(t, GeneratedConfig{Rows: 10, Inputs: 3, Outputs: 2})
	whole := all(d)
	part, err := Subset(d, Range{4, 7})
	if err != nil {
		t.Fatal(err)
	}
	got := all(part)
	if part.Len() != 3 || part.Spec() != d.Spec() || !slices.Equal(got.X, whole.X[12:21]) || !slices.Equal(got.Y, whole.Y[8:14]) {
		t.Errorf("rows 4:7 are %v %v", got.X, got.Y)
	}
	for _, r := range []Range{{0, 11}, {10, 12}, {-1, 3}, {3, 3}} {
		if _, err := Subset(d, r); err == nil {
			t.Errorf("range %v of 10 rows gives no error", r)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a row beyond the subset does not panic")
		}
	}()
	part.Read(3, make([]float32, 3), make([]float32, 2), nil)
}

func FuzzParseRange(f *testing.F) {
	f.Add("0:9000")
	f.Add("-1:")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		if again, err := ParseRange(r.String()); err != nil || again != r || r.First < 0 || r.First >= r.End {
			t.Errorf("%q is %v, which reads back as %v, error %v", text, r, again, err)
		}
	})
}
