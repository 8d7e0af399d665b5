package slurm_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ddpbatch/slurm"

	"pgregory.net/rapid"
)

const day = 24 * time.Hour

// The forms of sbatch(1), each computed by hand.
func TestParseTime(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"90":          90 * time.Minute,
		"0":           0,
		"01:30":       90 * time.Second,
		"90:90":       91*time.Minute + 30*time.Second,
		"01:00:00":    time.Hour,
		"1:2:3":       time.Hour + 2*time.Minute + 3*time.Second,
		"100:00:00":   100 * time.Hour,
		"1-0":         day,
		"1-12":        36 * time.Hour,
		"1-12:30":     36*time.Hour + 30*time.Minute,
		"1-12:00:00":  36 * time.Hour,
		"7-00:00:01":  7*day + time.Second,
		"1-25:61:61":  2*day + 2*time.Hour + 2*time.Minute + time.Second,
		"0-1:05":      65 * time.Minute,
		"9:08":        9*time.Minute + 8*time.Second, // squeue -o %L
		"UNLIMITED":   slurm.Unlimited,
		"unlimited":   slurm.Unlimited,
		"INFINITE":    slurm.Unlimited,
		"infinite":    slurm.Unlimited,
		"35791394":    35791394 * time.Minute, // the last minute that 32-bit seconds hold
		"24855-03:14": 24855*day + 3*time.Hour + 14*time.Minute,
	} {
		if got, err := slurm.ParseTime(s); err != nil || got != want {
			t.Errorf("ParseTime(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

// All but the last four are refused by sbatch 22.05.8 too; those it wraps round or reads oddly.
func TestParseTimeRefuses(t *testing.T) {
	for s, want := range map[string]string{
		"":                              "write minutes",
		"tomorrow":                      "write minutes",
		"1:2:3:4:5":                     "write minutes",
		"1:2:3:4":                       "write minutes",
		"1-1:2:3:4":                     "write minutes",
		":30":                           "write minutes",
		"1:":                            "write minutes",
		"1--2":                          "write minutes",
		"1-2-3":                         "write minutes",
		"1:-2":                          "write minutes",
		"1 2":                           "write minutes",
		"+5":                            "write minutes",
		"-":                             "write minutes",
		"90m":                           "write minutes",
		"1.5":                           "write minutes",
		"1h":                            "write minutes",
		"1-":                            "write minutes",
		"-2":                            "write minutes",
		"35791395":                      "write UNLIMITED",
		"99999999999999999999-00:00:00": "write UNLIMITED",
	} {
		if got, err := slurm.ParseTime(s); err == nil {
			t.Errorf("ParseTime(%q) = %v, want an error", s, got)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseTime(%q): %v; want %q in it", s, err, want)
		}
	}
}

// TestTimeCorpus reads every limit and run time that Slurm's commands showed, and writes it
// the same way.
func TestTimeCorpus(t *testing.T) {
	times := regexp.MustCompile(`\b(?:TimeLimit|RunTime|DefaultTime|MaxTime)=(\d\S*:\d\d|UNLIMITED)`)
	files, err := filepath.Glob(filepath.Join("testdata", "22.05", "cli*", "scontrol-*.stdout"))
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range times.FindAllStringSubmatch(string(data), -1) {
			held[match[1]] = true
			if d, err := slurm.ParseTime(match[1]); err != nil || slurm.FormatTime(d) != match[1] {
				t.Errorf("%s: %s reads as %v, %v and is written %s", filepath.Base(file), match[1], d, err, slurm.FormatTime(d))
			}
		}
	}
	if len(held) < 10 {
		t.Errorf("only %d times in the corpus: %v", len(held), held)
	}
}

func TestFormatTime(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"00:00:00":   0,
		"00:10:00":   10 * time.Minute,
		"23:59:59":   day - time.Second,
		"1-00:00:00": day,
		"2-03:04:05": 2*day + 3*time.Hour + 4*time.Minute + 5*time.Second,
		"00:00:01":   time.Nanosecond,
		"00:01:00":   59*time.Second + time.Millisecond,
		"UNLIMITED":  slurm.Unlimited,
		"INVALID":    -time.Second,
	} {
		if got := slurm.FormatTime(d); got != want {
			t.Errorf("FormatTime(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestTimeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 1<<31-1).Draw(t, "seconds")) * time.Second
		if got, err := slurm.ParseTime(slurm.FormatTime(d)); err != nil || got != d {
			t.Fatalf("%v is written %s and read %v, %v", d, slurm.FormatTime(d), got, err)
		}
	})
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"90", "1:30", "1:2:3", "1-2", "1-2:3", "1-2:3:4", "UNLIMITED", "1:2:3:4", "-1", "2147483647-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := slurm.ParseTime(s)
		if err != nil {
			return
		}
		if d < 0 || d%time.Second != 0 && d != slurm.Unlimited {
			t.Fatalf("ParseTime(%q) = %v", s, d)
		}
		if again, err := slurm.ParseTime(slurm.FormatTime(d)); err != nil || again != d {
			t.Fatalf("%q is %v, written %s, read %v, %v", s, d, slurm.FormatTime(d), again, err)
		}
	})
}
