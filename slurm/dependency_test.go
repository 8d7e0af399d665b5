package slurm

import (
	"strings"
	"testing"
)

// If an option is given several times, the last one counts, as for sbatch, whose command line comes last.
func TestDependencyIsTheLast(t *testing.T) {
	file := Options{List: []Option{{Name: "dependency", Value: "afterok:1"}}}
	extra := Options{List: file.List, Extra: []string{"--dependency=afterok:2"}}
	skipped := Options{List: file.List, Extra: extra.Extra, Skip: []string{"--dependency"}}
	for _, row := range []struct {
		options Options
		words   string
		want    string
	}{
		{Options{}, "", ""},
		{Options{}, "--deadline=now --qos=d -D", ""},
		{file, "", "afterok:1"},
		{extra, "", "afterok:2"},
		{skipped, "", ""},
		{file, "--dependency=afterany:3 --qos=x", "afterany:3"},
		{extra, "-dsingleton", "singleton"},
		{extra, "--dep=afterok:d4", "afterok:d4"},
		{extra, "-Hdafterok:5", "afterok:5"},
		{skipped, "--dependency=afterok:1 --dependency=afterok:6", "afterok:6"},
		{file, "--dependency=", ""},
	} {
		if got := row.options.Dependency(strings.Fields(row.words)); got != row.want {
			t.Errorf("%+v, words %q: %q, want %q", row.options, row.words, got, row.want)
		}
	}
}

func TestJoinDependencies(t *testing.T) {
	for _, row := range []struct {
		conditions []string
		want       string
		refused    bool
	}{
		{nil, "", false},
		{[]string{"", "afterok:1"}, "afterok:1", false},
		{[]string{"afterok:1", "", AfterAny([]string{"2", "3"})}, "afterok:1,afterany:2:3", false},
		{[]string{"afterok:1?afterok:2"}, "afterok:1?afterok:2", false},
		{[]string{"", "afterok:1?afterok:2", ""}, "afterok:1?afterok:2", false},
		{[]string{"afterok:1?afterok:2", "singleton"}, "", true},
		{[]string{"singleton", "afterok:1?afterok:2"}, "", true},
	} {
		got, err := JoinDependencies(row.conditions...)
		if got != row.want || (err != nil) != row.refused {
			t.Errorf("%q: %q, %v; want %q", row.conditions, got, err, row.want)
		}
	}
}
