package slurm_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ddpbatch/slurm"
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
		if got, err := slurm.ParseTaskCounts(s); err != nil || !slices.Equal(got, want) {
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
		"2(x0)":                   "0 times",
		"2(x3":                    "closing bracket",
		"2(x3)4":                  "closing bracket",
		"(null)":                  "not a number",
		"65536":                   "count 65536 of one node",
		"99999999999999999999":    "too large",
		"1(x99999999999999999)":   "too large",
		"1(x2147483647)":          "more than the 65536",
		"1(x65537)":               "more than the 65536",
		"1(x65536),1":             "more than the 65536",
		strings.Repeat("1,", 1e6): "more than the 65536",
	} {
		if got, err := slurm.ParseTaskCounts(s); err == nil {
			t.Errorf("ParseTaskCounts(%.30q) = %d counts, want an error", s, len(got))
		} else if !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("ParseTaskCounts(%.30q): %v; want %q in it", s, err, want)
		}
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
		if got, err := slurm.ParseTaskCounts(s); err != nil || !slices.Equal(got, counts) {
			t.Fatalf("%v is written %q and read %v, %v", counts, s, got, err)
		}
	})
}

func FuzzParseTaskCounts(f *testing.F) {
	for _, s := range []string{"2(x3),1", "1(x999999999)", "4,2,1(x2)", "2(x", "1(x0)", "007(x01)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		counts, err := slurm.ParseTaskCounts(s)
		if err != nil {
			return
		}
		if len(counts) == 0 || len(counts) > slurm.MaxNodes {
			t.Fatalf("%q gives %d counts", s, len(counts))
		}
		again, err := slurm.ParseTaskCounts(slurm.FormatTaskCounts(counts))
		if err != nil || !slices.Equal(again, counts) {
			t.Fatalf("%q gives %v, then %v, %v", s, counts, again, err)
		}
	})
}

const day = 24 * time.Hour

// The forms are those of sbatch(1). Each value was computed by hand.
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

// sbatch 22.05.8 also refuses all of these except the last four, for which its arithmetic overflows or which it misreads.
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
		"90m":                           `write "90" (minutes) or "01:30:00"`,
		"90s":                           `write "00:01:30"`,
		"1.5":                           "write minutes",
		"1h":                            `write "60" (minutes) or "01:00:00"`,
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

// TestTimeCorpus parses every limit and run time that Slurm's commands printed, and formats it the same way.
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

// The cases are what sbatch 22.05.8 accepts and what it refuses (each was tried with --test-only), with the meaning that its manual gives.
func TestParseWarning(t *testing.T) {
	usr1, minute := syscall.SIGUSR1, time.Minute
	for text, want := range map[string]slurm.Warning{
		"USR1": {usr1, false, minute}, "usr1@30": {usr1, false, 30 * time.Second}, "SIGUSR1@30": {usr1, false, 30 * time.Second},
		"10@5": {syscall.Signal(10), false, 5 * time.Second}, "09": {syscall.SIGKILL, false, minute},
		"64":     {syscall.Signal(64), false, minute},
		"B:USR1": {usr1, true, minute}, "b:usr1@1": {usr1, true, time.Second}, "B:10": {usr1, true, minute}, ":USR1": {usr1, false, minute},
		"R:USR1": {usr1, false, minute}, "RB:TERM@9": {syscall.SIGTERM, true, 9 * time.Second}, "BR:TERM": {syscall.SIGTERM, true, minute},
		"USR1@": {usr1, false, 0}, "USR1@0": {usr1, false, 0}, "USR1@65535": {usr1, false, 65535 * time.Second},
		"USR1 @5": {usr1, false, 5 * time.Second},
	} {
		if got, err := slurm.ParseWarning(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "USR1@65536", "0", "B:", "FOO", "USR1@1x", "RTMIN+1", "USR1@-1", "EXIT", "X:USR1", "B:B:USR1"} {
		if got, err := slurm.ParseWarning(bad); err == nil || !strings.Contains(err.Error(), "B:USR2@120") {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
	for _, text := range []string{"B:USR2@120", "TERM@30"} {
		if w, err := slurm.ParseWarning(text); err != nil || w.String() != text {
			t.Errorf("%s comes back as %s, %v", text, w, err)
		}
	}
}

func TestAreClusters(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "a,b-2.x_y": true, "": false, "all": false, "ALL": false, "a,": false, "a b": false, "!": false, "a;b": false,
	} {
		if got := slurm.AreClusters(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
