package data

import (
	"os"
	"path/filepath"
	"slices"
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

// writeFile writes a file with that name in a folder of its own, and returns its path.
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
