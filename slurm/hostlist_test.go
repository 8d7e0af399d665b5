package slurm_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

// accepted holds the lists that Slurm 22.05 refuses because of the text after their last bracket. This package accepts them, as Slurm 23.11
// does. The expansions were written by hand.
var accepted = map[string]string{
	"n[1-2,4],gpu[001-003,010]-ib0,login": "n1 n2 n4 gpu001-ib0 gpu002-ib0 gpu003-ib0 gpu010-ib0 login",
	"node-a[1-2].example.org":             "node-a1.example.org node-a2.example.org",
	"n[0-3]suffix":                        "n0suffix n1suffix n2suffix n3suffix",
	"n[1-2]/3":                            "n1/3 n2/3",
}

// refused holds the lists that Slurm 22.05 repairs silently (see its answers in the corpus).
var refused = map[string]bool{
	"n[1-":  true, // "n]"
	"n1-4]": true, // "n1-4]"
	"n[99999999999999999999-100000000000000000001]": true, // the number saturates
}

// TestExpandHostlistCorpus checks every answer of `scontrol show hostnames` in the corpus.
func TestExpandHostlistCorpus(t *testing.T) {
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

// TestExpandOrdersSeveralBracketsAsSlurm checks the unusual order in which Slurm expands several brackets.
func TestExpandOrdersSeveralBracketsAsSlurm(t *testing.T) {
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

// These lists are not in the corpus. The ones without a suffix were given to scontrol 22.05.8 one by one; the others are test vectors of
// ClusterShell and of Slurm.
func TestExpandHostlist(t *testing.T) {
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

// ExpandHostlist knows the size of the result before it allocates memory for it.
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
		{"a[1-65536]b[1-65536]c[1-65536]", 1 << 20, false},
		{"a[1-65536]b[1-65536]c[1-65536]d[1-65536]", 1 << 20, false},
		{strings.Repeat("n[1-65536],", 1000), 1 << 20, false},
		{"n1", 0, false},
		{"n1", -1, false},
		{"", 0, true},
	} {
		// This counts all memory of the process, including that of other goroutines, which can only add to it. The least of several tries
		// decides.
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

// TestFoldHostlistCorpus checks every answer of `scontrol show hostlist` in the corpus. Rows of hostlistsorted belong to another command.
func TestFoldHostlistCorpus(t *testing.T) {
	held := 0
	for _, row := range readTSV(t, "compress.tsv", 30) {
		command, list, want := row[0], row[1], row[3]
		if command != "hostlist" {
			continue
		}
		held++
		hosts, err := slurm.ExpandHostlist(list, slurm.MaxNodes)
		if err != nil {
			t.Errorf("ExpandHostlist(%q): %v", list, err)
		} else if folded := slurm.FoldHostlist(hosts); folded != want {
			t.Errorf("FoldHostlist(%q) = %q, want %q", list, folded, want)
		}
	}
	if held < 15 {
		t.Errorf("only %d rows of show hostlist", held)
	}
}

// These lists are not in the corpus. They were given to scontrol 22.05.8 one by one, except for the last three: there Slurm saturates
// numbers, or the names cannot come from it.
func TestFoldHostlist(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "",
		"a9,a10,a011":           "a[9-10,011]",
		"n01,n1,n2":             "n[01,1-2]",
		"n09,n10,n011":          "n[09-10,011]",
		"n9,n010":               "n[9,010]",
		"n98,n099,n100":         "n[98,099-100]",
		"n99,n100,n0101":        "n[99-100,0101]",
		"a,a,a":                 "a,a,a",
		"n1,n1":                 "n[1,1]",
		"n1,n2,n2,n3":           "n[1-2,2-3]",
		"n2,n1":                 "n[2,1]",
		"n00,n01":               "n[00-01]",
		"n0,n00":                "n[0,00]",
		"1a2,1a3":               "1a[2-3]",
		"n1,m1,n2":              "n1,m1,n2",
		"x1y01,x1y02,x2y01":     "x1y[01-02],x2y01",
		"n18446744073709551615": "n18446744073709551615",
		"n18446744073709551615,n00000000000000000000": "n[18446744073709551615,00000000000000000000]",
		"n99999999999999999999,n99999999999999999999": "n99999999999999999999,n99999999999999999999",
	} {
		if got := slurm.FoldHostlist(strings.FieldsFunc(list, func(r rune) bool { return r == ',' })); got != want {
			t.Errorf("FoldHostlist(%q) = %q, want %q", list, got, want)
		}
	}
}

// A folded list has no range that expansion refuses.
func TestFoldWritesNoRangeThatIsRefused(t *testing.T) {
	hosts := make([]string, slurm.MaxNodes+2)
	for i := range hosts {
		hosts[i] = fmt.Sprint("n", i)
	}
	folded := slurm.FoldHostlist(hosts)
	if want := "n[0-65535,65536-65537]"; folded != want {
		t.Fatalf("folded to %q, want %q", folded, want)
	}
	if back, err := slurm.ExpandHostlist(folded, len(hosts)); err != nil || !slices.Equal(back, hosts) {
		t.Errorf("expands to %d hosts, %v", len(back), err)
	}
}

// hostNames draws names as clusters have them, with consecutive numbers among them.
func hostNames() *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		var hosts []string
		for range rapid.IntRange(0, 12).Draw(t, "groups") {
			prefix := rapid.SampledFrom([]string{"n", "gpu-", "rack0node", "10.0.0.", "", "x1y", "é"}).Draw(t, "prefix")
			width := rapid.IntRange(1, 5).Draw(t, "width")
			suffix := rapid.SampledFrom([]string{"", "", "", "-ib0", ".example.org"}).Draw(t, "suffix")
			first := rapid.SampledFrom([]uint64{0, 1, 8, 9, 98, 99998, math.MaxUint64 - 3}).Draw(t, "first")
			for i := range rapid.Uint64Range(1, 4).Draw(t, "names") {
				hosts = append(hosts, fmt.Sprintf("%s%0*d%s", prefix, width, first+i, suffix))
			}
		}
		return hosts
	})
}

func TestFoldThenExpandIsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := hostNames().Draw(t, "hosts")
		folded := slurm.FoldHostlist(hosts)
		back, err := slurm.ExpandHostlist(folded, len(hosts))
		if err != nil || !slices.Equal(back, hosts) {
			t.Fatalf("%q folded to %q, which expands to %q, %v", hosts, folded, back, err)
		}
		if n, err := slurm.CountHosts(folded); err != nil || n != len(hosts) {
			t.Fatalf("CountHosts(%q) = %d, %v; want %d", folded, n, err, len(hosts))
		}
	})
}

// scontrol returns a function that runs this machine's `scontrol show`. It needs no daemon, only a configuration file that it can read.
func scontrol(t *testing.T) func(arg ...string) string {
	t.Helper()
	path, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skip("needs scontrol, which is not installed")
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(arg ...string) string {
		cmd := exec.Command(path, append([]string{"show"}, arg...)...)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("scontrol show %q: %v", arg, err)
		}
		return strings.TrimSpace(string(out))
	}
}

// TestHostlistAgreesWithScontrol compares the results for random lists with those of the installed scontrol.
func TestHostlistAgreesWithScontrol(t *testing.T) {
	show := scontrol(t)
	number := rapid.SampledFrom([]string{"0", "1", "01", "3", "007", "9-11", "09-10", "098-101", "8-010", "2-2"})
	item := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "brackets") {
			b.WriteString(rapid.SampledFrom([]string{"n", "a-", "x0", "", "10.0."}).Draw(t, "literal"))
			numbers := rapid.SliceOfN(number, 1, 3).Draw(t, "numbers")
			b.WriteString("[" + strings.Join(numbers, ",") + "]")
		}
		if b.Len() == 0 {
			return rapid.SampledFrom([]string{"login", "n1", "gpu001-ib0"}).Draw(t, "name")
		}
		return b.String() // no text after the last bracket: 22.05 refuses it
	})
	rapid.Check(t, func(t *rapid.T) {
		list := strings.Join(rapid.SliceOfN(item, 1, 3).Draw(t, "items"), ",")
		hosts, err := slurm.ExpandHostlist(list, slurm.MaxNodes)
		if want := strings.Fields(show("hostnames", list)); err != nil || !slices.Equal(hosts, want) {
			t.Errorf("ExpandHostlist(%q) = %q, %v; scontrol: %q", list, hosts, err, want)
		}
		if want := show("hostlist", strings.Join(hosts, ",")); slurm.FoldHostlist(hosts) != want {
			t.Errorf("FoldHostlist(%q) = %q; scontrol: %q", hosts, slurm.FoldHostlist(hosts), want)
		}
	})
}

func FuzzExpandHostlist(f *testing.F) {
	for _, list := range []string{
		"n[1-4]", "rack[0-1]node[00-01]-ib[0-1]", "n[01-03,5,007]", " n1 , n2 ", "n[3-1]", "n[1-", "n1-4]",
		"n[0-999999999]", "a[0-1]b[0-1]c[0-1]x,,y", "n{1,2}", "(null)", "n[98-101]\n",
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		const most = 1000
		n, countErr := slurm.CountHosts(list)
		hosts, err := slurm.ExpandHostlist(list, most)
		if err != nil {
			if countErr == nil && n <= most {
				t.Fatalf("%q counts %d hosts but does not expand: %v", list, n, err)
			}
			return
		}
		if countErr != nil || n != len(hosts) || n > most {
			t.Fatalf("%q: %d hosts, counted %d, %v", list, len(hosts), n, countErr)
		}
		for _, host := range hosts {
			if host == "" || len(host) > 255 || strings.ContainsAny(host, "[], \t\r\n\x00") {
				t.Fatalf("%q gives the name %q", list, host)
			}
		}
		folded := slurm.FoldHostlist(hosts)
		back, err := slurm.ExpandHostlist(folded, most)
		if err != nil || !slices.Equal(back, hosts) {
			t.Fatalf("%q folds to %q, which gives %q, %v", list, folded, back, err)
		}
		if again := slurm.FoldHostlist(back); again != folded {
			t.Fatalf("%q folds to %q, then to %q", list, folded, again)
		}
	})
}
