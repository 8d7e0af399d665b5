package slurm_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

// The forms that sbatch 22.05.8 takes for --mem; the numbers are sbatch(1)'s.
func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0":                 0,
		"1":                 1 << 20,
		"1500":              1500 << 20,
		"1K":                1 << 10,
		"1k":                1 << 10,
		"1KB":               1 << 10,
		"1kb":               1 << 10,
		"512M":              512 << 20,
		"32G":               32 << 30,
		"32g":               32 << 30,
		"32GB":              32 << 30,
		"2T":                2 << 40,
		"007":               7 << 20,
		"8796093022207":     math.MaxInt64 &^ (1<<20 - 1),
		"8388607T":          math.MaxInt64 &^ (1<<40 - 1),
		"9007199254740991K": math.MaxInt64 &^ (1<<10 - 1),
	} {
		if got, err := slurm.ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
}

// All but the last four are refused by sbatch 22.05.8 too; those it takes, or wraps round.
func TestParseSizeRefuses(t *testing.T) {
	for s, want := range map[string]string{
		"":                     "whole number",
		"G":                    "whole number",
		"B":                    "whole number",
		"GB":                   "whole number",
		"12Q":                  "whole number",
		"1P":                   "whole number",
		"1.5G":                 "whole number",
		"-1":                   "whole number",
		"1b":                   "whole number",
		"1BB":                  "whole number",
		"1KBB":                 "whole number",
		"1KiB":                 "whole number",
		"1Gi":                  "whole number",
		"1K1":                  "whole number",
		"1 G":                  "whole number",
		"32G ":                 "whole number",
		"0x10":                 "whole number",
		"1_000":                "whole number",
		"99999999999999999999": "larger",
		"+1":                   "whole number",
		" 1":                   "whole number",
		"8796093022208":        "larger",
		"8388608T":             "larger",
	} {
		if got, err := slurm.ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q): %v; want %q in it", s, err, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "1500", "32G", "1kb", "12Q", "8388608T", "B", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := slurm.ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 || n%1024 != 0 {
			t.Fatalf("ParseSize(%q) = %d", s, n)
		}
		if again, err := slurm.ParseSize(strconv.FormatInt(n/1024, 10) + "K"); err != nil || again != n {
			t.Fatalf("%q is %d, and in K %d, %v", s, n, again, err)
		}
	})
}
