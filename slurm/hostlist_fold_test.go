package slurm_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"

	"pgregory.net/rapid"
)

// TestFoldCorpus holds every answer of `scontrol show hostlist` that was collected. Rows of
// hostlistsorted are another command's.
func TestFoldCorpus(t *testing.T) {
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

// Beyond the corpus: answers of scontrol 22.05.8 asked one by one, but for the last three, where
// Slurm saturates numbers, or the names cannot come from it.
func TestFold(t *testing.T) {
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

// TestFoldLong: a fold never writes a range that expansion refuses.
func TestFoldLong(t *testing.T) {
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

// hostNames draws names as clusters have them, and runs of neighbours among them.
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
