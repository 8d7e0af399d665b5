package data

import (
	"math"
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

func all(d Dataset) *Batch {
	rows := make([]int, d.Len())
	for i := range rows {
		rows[i] = i
	}
	var b Batch
	b.Fill(d, rows)
	return &b
}

func TestGeneratedIsAFunctionOfItsConfig(t *testing.T) {
	cfg := GeneratedConfig{Rows: 50, Inputs: 4, Outputs: 2, Noise: 0.5, Seed: 9}
	a, b := all(mustGenerate(t, cfg)), all(mustGenerate(t, cfg))
	if !slices.Equal(a.X, b.X) || !slices.Equal(a.Y, b.Y) {
		t.Error("the same config gave two data sets")
	}
	cfg.Seed++
	if c := all(mustGenerate(t, cfg)); slices.Equal(a.X, c.X) {
		t.Error("another seed gave the same inputs")
	}
}

// Without noise, outputs are linear in the inputs: with one input they are proportional to it, and noise
// adds what was asked for.
func TestGeneratedIsLinearPlusNoise(t *testing.T) {
	clean := all(mustGenerate(t, GeneratedConfig{Rows: 2000, Inputs: 1, Outputs: 1}))
	slope := float64(clean.Y[0] / clean.X[0])
	var sumX, sumXX float64
	for i, x := range clean.X {
		if d := math.Abs(float64(clean.Y[i]) - slope*float64(x)); d > 1e-5 {
			t.Fatalf("row %d: %v is not %v times %v", i, clean.Y[i], slope, x)
		}
		sumX += float64(x)
		sumXX += float64(x) * float64(x)
	}
	// Mean and variance of 2,000 standard normals, within five standard errors.
	if mean, variance := sumX/2000, sumXX/2000; math.Abs(mean) > 0.11 || math.Abs(variance-1) > 0.16 {
		t.Errorf("inputs have mean %v and variance %v, want 0 and 1", mean, variance)
	}
	noisy := all(mustGenerate(t, GeneratedConfig{Rows: 2000, Inputs: 1, Outputs: 1, Noise: 2}))
	var residual float64
	for i, y := range noisy.Y {
		d := float64(y) - slope*float64(noisy.X[i])
		residual += d * d / 2000
	}
	if math.Abs(math.Sqrt(residual)-2) > 0.2 {
		t.Errorf("the noise has deviation %v, want 2", math.Sqrt(residual))
	}
}

func TestGenerateRefuses(t *testing.T) {
	for name, cfg := range map[string]GeneratedConfig{
		"no rows":        {Inputs: 1, Outputs: 1},
		"no inputs":      {Rows: 1, Outputs: 1},
		"no outputs":     {Rows: 1, Inputs: 1},
		"negative noise": {Rows: 1, Inputs: 1, Outputs: 1, Noise: -1},
		"NaN noise":      {Rows: 1, Inputs: 1, Outputs: 1, Noise: math.NaN()},
		"too many":       {Rows: 1 << 28, Inputs: 1, Outputs: 1},
		"overflow":       {Rows: math.MaxInt, Inputs: math.MaxInt, Outputs: math.MaxInt},
		"a large map":    {Rows: 1, Inputs: 1 << 20, Outputs: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Generate(cfg); err == nil {
				t.Error("no error")
			}
		})
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
	part.Read(3, make([]float32, 3), make([]float32, 2))
}

func TestFillReusesMemory(t *testing.T) {
	d := mustGenerate(t, GeneratedConfig{Rows: 10, Inputs: 3, Outputs: 2})
	whole := all(d)
	var b Batch
	b.Fill(d, []int{1, 2, 3, 4})
	if n := testing.AllocsPerRun(10, func() { b.Fill(d, []int{9, 0}) }); n != 0 {
		t.Errorf("a smaller batch allocates %v times", n)
	}
	if want := slices.Concat(whole.X[27:30], whole.X[:3]); b.Rows != 2 || !slices.Equal(b.X, want) {
		t.Errorf("rows 9 and 0 are %v, want %v", b.X, want)
	}
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

// Whatever differs in a row, or in how rows are read, differs in the digest; copies agree.
func TestDigest(t *testing.T) {
	load := func(images, labels []byte) Dataset {
		set, err := LoadMNIST(writeMNIST(t, images, labels))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	images, labels := idxBytes([]uint32{3, 1, 2}, 1, 2, 3, 4, 1, 2), idxBytes([]uint32{3}, 7, 8, 7)
	want := Digest(load(images, labels))
	if Digest(load(images, gzipped(t, labels))) != want {
		t.Error("a copy of the files has another digest")
	}
	part := func(first, end int) Dataset {
		set, err := Subset(load(images, labels), Range{first, end})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	if Digest(part(0, 1)) != Digest(part(2, 3)) {
		t.Error("equal rows at other places have another digest")
	}
	for name, set := range map[string]Dataset{
		"a pixel":      load(idxBytes([]uint32{3, 1, 2}, 1, 2, 3, 5, 1, 2), labels),
		"a label":      load(images, idxBytes([]uint32{3}, 7, 9, 7)),
		"the order":    load(idxBytes([]uint32{3, 1, 2}, 3, 4, 1, 2, 1, 2), idxBytes([]uint32{3}, 8, 7, 7)),
		"fewer rows":   part(0, 2),
		"another kind": mustGenerate(t, GeneratedConfig{Rows: 3, Inputs: 2, Outputs: 1}),
	} {
		if Digest(set) == want {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if a, b := mustGenerate(t, GeneratedConfig{Rows: 3, Inputs: 2, Outputs: 1}), mustGenerate(t, GeneratedConfig{Rows: 3, Inputs: 2, Outputs: 1, Noise: 1}); Digest(a) == Digest(b) {
		t.Error("other outputs have the same digest")
	}
}

func BenchmarkDigest(b *testing.B) {
	set := mustGenerate(b, GeneratedConfig{Rows: 9000, Inputs: 784, Outputs: 1})
	b.SetBytes(9000 * 785 * 4)
	for b.Loop() {
		Digest(set)
	}
}
