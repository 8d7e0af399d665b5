package slurm_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"

	"pgregory.net/rapid"
)

// The first five are from the environments in testdata/22.05/env.
func TestParseTaskCounts(t *testing.T) {
	for s, want := range map[string][]int{
		"2(x3),1":           {2, 2, 2, 1},
		"4,2,1(x2)":         {4, 2, 1, 1},
		"2(x2),1,3":         {2, 2, 1, 3},
		"1":                 {1},
		"8(x2)":             {8, 8},
		"3(x1)":             {3},
		"0":                 {0},
		"65535(x2),1,1,128": {65535, 65535, 1, 1, 128},
	} {
		if got, err := slurm.ParseTaskCounts(s, 8); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseTaskCounts(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestParseTaskCountsRefuses(t *testing.T) {
	for s, want := range map[string]string{
		"":                        "not a number",
		",":                       "not a number",
		"2,":                      "not a number",
		"2(x3),,1":                "not a number",
		" 2":                      "not a number",
		"-2":                      "not a number",
		"+2":                      "not a number",
		"2x3":                     "not a number",
		"2(x)":                    "not a number",
		"2(x-1)":                  "not a number",
		"(x2)":                    "not a number",
		"2(x3)(x4)":               "not a number",
		"2(x0)":                   "no times",
		"2(x3":                    "closing bracket",
		"2(x3)4":                  "closing bracket",
		"(null)":                  "not a number",
		"65536":                   "65536 on one node",
		"99999999999999999999":    "too large",
		"1(x99999999999999999)":   "too large",
		"1(x999999999)":           "more than the 1000",
		"1(x1001)":                "more than the 1000",
		"1(x1000),1":              "more than the 1000",
		strings.Repeat("1,", 1e6): "more than the 1000",
	} {
		if got, err := slurm.ParseTaskCounts(s, 1000); err == nil {
			t.Errorf("ParseTaskCounts(%.30q) = %d counts, want an error", s, len(got))
		} else if !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("ParseTaskCounts(%.30q): %v; want %q in it", s, err, want)
		}
	}
	if got, err := slurm.ParseTaskCounts("1(x2147483647)", math.MaxInt); err == nil {
		t.Errorf("%d counts, more than Slurm has nodes", len(got))
	}
}

func TestFormatTaskCounts(t *testing.T) {
	for want, counts := range map[string][]int{
		"":          nil,
		"1":         {1},
		"2(x3),1":   {2, 2, 2, 1},
		"4,2,1(x2)": {4, 2, 1, 1},
		"1,2(x2),1": {1, 2, 2, 1},
	} {
		if got := slurm.FormatTaskCounts(counts); got != want {
			t.Errorf("FormatTaskCounts(%v) = %q, want %q", counts, got, want)
		}
	}
}

func TestTaskCountsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 2), rapid.IntRange(0, 65535)), 1, 40).Draw(t, "counts")
		s := slurm.FormatTaskCounts(counts)
		if got, err := slurm.ParseTaskCounts(s, len(counts)); err != nil || !slices.Equal(got, counts) {
			t.Fatalf("%v is written %q and read %v, %v", counts, s, got, err)
		}
		if _, err := slurm.ParseTaskCounts(s, len(counts)-1); err == nil {
			t.Fatalf("%q is read for %d nodes", s, len(counts)-1)
		}
	})
}

func FuzzParseTaskCounts(f *testing.F) {
	for _, s := range []string{"2(x3),1", "1(x999999999)", "4,2,1(x2)", "2(x", "1(x0)", "007(x01)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const most = 1000
		counts, err := slurm.ParseTaskCounts(s, most)
		if err != nil {
			return
		}
		if len(counts) == 0 || len(counts) > most {
			t.Fatalf("%q gives %d counts", s, len(counts))
		}
		again, err := slurm.ParseTaskCounts(slurm.FormatTaskCounts(counts), most)
		if err != nil || !slices.Equal(again, counts) {
			t.Fatalf("%q gives %v, then %v, %v", s, counts, again, err)
		}
	})
}
