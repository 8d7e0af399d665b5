package slurm_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

// readTSV returns the rows of a file of the hostlist corpus, at least atLeast of them.
func readTSV(t *testing.T, name string, atLeast int) [][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "22.05", "hostlists", name))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	if len(rows) < atLeast {
		t.Fatalf("%s has %d rows, want at least %d", name, len(rows), atLeast)
	}
	return rows
}

// accepted are the lists that Slurm 22.05 refuses for the text after their last bracket, and which
// are accepted here as by Slurm 23.11. The expansions are by hand.
var accepted = map[string]string{
	"n[1-2,4],gpu[001-003,010]-ib0,login": "n1 n2 n4 gpu001-ib0 gpu002-ib0 gpu003-ib0 gpu010-ib0 login",
	"node-a[1-2].example.org":             "node-a1.example.org node-a2.example.org",
	"n[0-3]suffix":                        "n0suffix n1suffix n2suffix n3suffix",
	"n[1-2]/3":                            "n1/3 n2/3",
}

// refused are the lists that Slurm 22.05 repairs silently (see its answers in the corpus).
var refused = map[string]bool{
	"n[1-":  true, // "n]"
	"n1-4]": true, // "n1-4]"
	"n[99999999999999999999-100000000000000000001]": true, // the number saturates
}

// TestExpandCorpus holds every answer of `scontrol show hostnames` that was collected.
func TestExpandCorpus(t *testing.T) {
	seen := 0
	for _, row := range readTSV(t, "expand.tsv", 40) {
		list, want, wantErr := row[0], row[2], row[3] != ""
		if expansion, ok := accepted[list]; ok {
			if !wantErr {
				t.Errorf("%q: listed as refused by Slurm, but the corpus has %q", list, want)
			}
			want, wantErr = expansion, false
			seen++
		}
		if refused[list] {
			if wantErr {
				t.Errorf("%q: listed as repaired by Slurm, but the corpus has an error", list)
			}
			wantErr = true
			seen++
		}
		hosts, err := slurm.ExpandHostlist(list, slurm.MaxNodes)
		if wantErr {
			if err == nil {
				t.Errorf("ExpandHostlist(%q) = %q, want an error", list, hosts)
			}
			continue
		}
		if err != nil || !slices.Equal(hosts, strings.Fields(want)) {
			t.Errorf("ExpandHostlist(%q) = %q, %v; want %s", list, hosts, err, want)
		}
	}
	if seen != len(accepted)+len(refused) {
		t.Errorf("%d deviations met in the corpus, %d listed", seen, len(accepted)+len(refused))
	}
}

// TestExpandSeveralBrackets holds the odd order in which Slurm turns several brackets.
func TestExpandSeveralBrackets(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "22.05", "hostlists", "multidim.txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(data)) {
		list, want, _ := strings.Cut(line, " => ")
		hosts, err := slurm.ExpandHostlist(list, slurm.MaxNodes)
		if err != nil || !slices.Equal(hosts, strings.Fields(want)) {
			t.Errorf("ExpandHostlist(%q) = %q, %v; want %s", list, hosts, err, want)
		}
		lines++
	}
	if lines < 3 {
		t.Errorf("only %d lines in multidim.txt", lines)
	}
}

// Beyond the corpus: answers of scontrol 22.05.8 asked one by one (those without a suffix), and
// the vectors of ClusterShell's and Slurm's own tests in reference/launching.md.
func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"":                           "",
		" ,\t\n,":                    "",
		"n1\tn2\nn3":                 "n1 n2 n3",
		"a,,b":                       "a b",
		"n[1-2],[3-4]":               "n1 n2 3 4",
		"a[1],,[2]":                  "a1 2",
		"n[1-02]":                    "n1 n2",
		"n[01-2]":                    "n01 n02",
		"n[9-010]":                   "n9 n10",
		"n[099-100,1]":               "n099 n100 n1",
		"n[1-2][3-4]":                "n13 n14 n23 n24",
		"a[1]b[1,2]c[3]d[4,5]":       "a1b1c3d4 a1b1c3d5 a1b2c3d4 a1b2c3d5",
		"b04-[09-10]":                "b04-09 b04-10",
		"node0[0]0":                  "node000",
		"prod-02[10-12,069-070]":     "prod-0210 prod-0211 prod-0212 prod-02069 prod-02070",
		"x[0-1]-gpu.cluster.loc":     "x0-gpu.cluster.loc x1-gpu.cluster.loc",
		"r[1-2]n[01-02]-ib":          "r1n01-ib r1n02-ib r2n01-ib r2n02-ib",
		"foo003,foo0[10-11],foo-m11": "foo003 foo010 foo011 foo-m11",
		"n[18446744073709551614-18446744073709551615]": "n18446744073709551614 n18446744073709551615",
	} {
		hosts, err := slurm.ExpandHostlist(list, slurm.MaxNodes)
		if err != nil || !slices.Equal(hosts, strings.Fields(want)) {
			t.Errorf("ExpandHostlist(%q) = %q, %v; want %q", list, hosts, err, want)
		}
		if n, err := slurm.CountHosts(list); err != nil || n != len(strings.Fields(want)) {
			t.Errorf("CountHosts(%q) = %d, %v; want %d", list, n, err, len(strings.Fields(want)))
		}
	}
}

func TestExpandRefuses(t *testing.T) {
	for list, want := range map[string]string{
		"n[":                                     "without its ]",
		"n6]":                                    "without its [",
		"n[1-4]]":                                "without its [",
		"n]1[2-3]":                               "without its [",
		"n[[1-2]]":                               "not a number",
		"a[1]b[2":                                "without its ]",
		"n[]":                                    "a number is missing",
		"n[-]":                                   "a number is missing",
		"n[1-]":                                  "a number is missing",
		"n[-3]":                                  "a number is missing",
		"n[1,,2]":                                "a number is missing",
		"n[1-2,]":                                "a number is missing",
		"n[4-3]":                                 "backwards",
		"n[a-b]":                                 "not a number",
		"n[1-5:2]":                               "not a number",
		"n[1-2-3]":                               "not a number",
		"n[+1-2]":                                "not a number",
		"n[1, 2]":                                "not a number",
		"n[1_000]":                               "not a number",
		"n[0x1-3]":                               "not a number",
		"n[٣]":                                   "not a number", // a digit, but not an ASCII one
		"n[18446744073709551616]":                "too large",
		"n[0-65536]":                             "more than 65536",
		"n[0-999999999]":                         "more than 65536",
		"n[0-18446744073709551615]":              "more than 65536",
		"n\x001":                                 "control character",
		"n1\r\n":                                 "control character",
		"n\x1b[1]":                               "control character",
		"n\u009b1":                               "control character",
		"n\xff":                                  "UTF-8",
		strings.Repeat("n", 256):                 "256 bytes",
		strings.Repeat("n", 250) + "[100000]":    "256 bytes",
		"n[" + strings.Repeat("0", 255) + "1-2]": "bytes",
	} {
		hosts, err := slurm.ExpandHostlist(list, math.MaxInt)
		if err == nil {
			t.Errorf("ExpandHostlist(%q) = %d hosts, want an error", list, len(hosts))
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("ExpandHostlist(%q): %v; want %q in it", list, err, want)
		}
		if n, err := slurm.CountHosts(list); err == nil {
			t.Errorf("CountHosts(%q) = %d, want an error", list, n)
		}
	}
}

// TestExpandIsBounded: what a list stands for is known before memory is taken for it.
func TestExpandIsBounded(t *testing.T) {
	for _, tt := range []struct {
		list string
		max  int
		ok   bool
	}{
		{"n[1-65536]", 65536, true},
		{"n[1-65536]", 65535, false},
		{"n[1-65536],m", 65536, false},
		{"a[1-65536]b[1-65536]", 1 << 20, false},
		{"a[1-65536]b[1-65536]c[1-65536]", math.MaxInt, false},
		{"a[1-65536]b[1-65536]c[1-65536]d[1-65536]", math.MaxInt, false},
		{strings.Repeat("n[1-65536],", 1000), 1 << 20, false},
		{"n1", 0, false},
		{"n1", -1, false},
		{"", 0, true},
	} {
		// All memory of the process is counted, also that of who runs meanwhile, which only adds: the least of several tries decides.
		least := uint64(math.MaxUint64)
		for try := 0; try < 5 && least > 1<<20; try++ {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := slurm.ExpandHostlist(tt.list, tt.max)
			runtime.ReadMemStats(&after)
			if tt.ok != (err == nil) {
				t.Fatalf("%.40s with at most %d: %v", tt.list, tt.max, err)
			}
			least = min(least, after.TotalAlloc-before.TotalAlloc)
			if tt.ok {
				break
			}
		}
		if !tt.ok && least > 1<<20 {
			t.Errorf("%.40s took %d bytes to be refused", tt.list, least)
		}
	}
}

func TestCountHosts(t *testing.T) {
	for list, want := range map[string]int{
		"n[1-65536]":           1 << 16,
		"a[1-65536]b[1-65536]": 1 << 32,
		"n1,n1,n[1-3]":         5,
	} {
		if n, err := slurm.CountHosts(list); err != nil || n != want {
			t.Errorf("CountHosts(%q) = %d, %v; want %d", list, n, err, want)
		}
	}
	const quarter = "a[1-65536]b[1-65536]c[1-65536]d[1-16384]" // 2 to the 62
	if n, err := slurm.CountHosts(quarter); err != nil || n != 1<<62 {
		t.Errorf("CountHosts(%q) = %d, %v", quarter, n, err)
	}
	for _, list := range []string{quarter + "," + quarter, quarter + "e[1-2]", quarter + "e[1-4]"} {
		if n, err := slurm.CountHosts(list); err == nil {
			t.Errorf("CountHosts(%q) = %d, want an error: no int holds it", list, n)
		}
	}
}
