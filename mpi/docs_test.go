package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

// algorithmsDoc returns the cells of the table below a heading of docs/algorithms.md, row by row, without the head.
func algorithmsDoc(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "algorithms.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/algorithms.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		var row []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|\n"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		rows = append(rows, row)
	}
	return rows[2:]
}

// docs/algorithms.md lists every algorithm of every collective. It says which do not keep the canonical order, which work only for a power
// of two or an even number of ranks, and which do not serve the form with counts.
func TestAlgorithmsDocHasAll(t *testing.T) {
	var want, got []string
	for kind := range collectives {
		d := &collectives[kind]
		if d.internal || d.algorithms[0] == nil {
			continue
		}
		if d.name == "all_reduce" {
			want = append(want, d.name+" "+hierarchicalName)
		}
		if d.shared != nil {
			want = append(want, d.name+" "+sharedName)
		}
		for _, a := range algorithm.TraitsOf(d.algorithms[0]) {
			same := func(e algorithm.Entry[runFunc]) bool { return e.Name == a.Name }
			ragged := d.algorithms[1] == nil || slices.ContainsFunc(d.algorithms[1], same)
			fits := func(size int) bool { return a.Fits == nil || a.Fits(size) }
			want = append(want, fmt.Sprintf("%s %s%s%s%s%s", d.name, a.Name, unless(a.Canonical, ", any order"),
				unless(fits(6) || fits(3), ", a power of two"), unless(fits(3) || !fits(6), ", even"), unless(ragged, ", not V")))
		}
	}
	collective := ""
	name := regexp.MustCompile("^`(.+)`$")
	for _, row := range algorithmsDoc(t, "All algorithms") {
		if row[0] != "" {
			collective = row[0]
		}
		a := name.FindStringSubmatch(row[1])
		if a == nil {
			t.Fatalf("docs/algorithms.md: %q is not the name of an algorithm", row[1])
		}
		says := func(words string) bool { return strings.Contains(row[2], words) }
		got = append(got, fmt.Sprintf("%s %s%s%s%s%s", collective, a[1], unless(!says("any order"), ", any order"),
			unless(!says("p a power of two"), ", a power of two"), unless(!says("p even"), ", even"), unless(!says("; not "), ", not V")))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("docs/algorithms.md has\n%s\nand package mpi\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func unless(cond bool, text string) string {
	if cond {
		return ""
	}
	return text
}

// The model chooses the algorithms that docs/algorithms.md lists for a common network.
func TestAlgorithmsDocHasTheChoices(t *testing.T) {
	rows := algorithmsDoc(t, "What the model says of a common network")
	if len(rows) < 20 {
		t.Fatalf("docs/algorithms.md has %d rows of choices", len(rows))
	}
	lengths := []int{1 << 10, 64 << 10, 1 << 20, 16 << 20}
	collective := ""
	for _, row := range rows {
		if row[0] != "" {
			collective = row[0]
		}
		var size int
		if _, err := fmt.Sscan(row[1], &size); err != nil || len(row) != 2+len(lengths) {
			t.Fatalf("docs/algorithms.md: %q", row)
		}
		i := slices.IndexFunc(collectives[:], func(d descriptor) bool { return d.name == collective })
		if i < 0 {
			t.Fatalf("docs/algorithms.md: unknown collective %q", collective)
		}
		for j, n := range lengths {
			m := defaultMachine
			if collectives[i].early {
				m.Alpha *= earlyShare
			}
			want := model.Choose(collectives[i].algorithms[0], m, size, n, collectives[i].reduces).Name
			if row[2+j] != want {
				t.Errorf("docs/algorithms.md: %s of %d ranks and %d bytes is by %s, want %s", collective, size, n, row[2+j], want)
			}
		}
	}
}
