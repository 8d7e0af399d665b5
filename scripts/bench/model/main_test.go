package main

import (
	"bytes"
	"fmt"
	"testing"

	"ddpbatch/internal/collbench"
)

// Ratios are computed per launch. A row counts as good if the prediction is off by at most a factor of 1.5, in either direction.
func TestTableComparesLaunchByLaunch(t *testing.T) {
	tables := []*table{{Collective: "broadcast", Transport: "tcp", Ranks: 2}}
	const launches = 3
	for turn := range launches {
		for _, r := range []struct {
			algorithm, more     string
			predicted, measured float64
		}{
			{"good", `,"chosen":true`, 3, 2}, // 1.5
			{"low", "", 2, 3.1}, {"high", "", 3.1, 2}, {"unknown", "", 0, 7},
		} {
			slow := float64(turn + 1) // the prediction of the same launch includes it
			line := fmt.Sprintf(`{"size":64,"algorithm":%q,"predicted_us":%v,"time_us":%v%s}`, r.algorithm, r.predicted*slow,
				r.measured*slow, r.more)
			if err := tables[0].add(line, turn, launches); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := scoreOf(tables, "tcp"), "1 of 3 rows within a factor of 1.5, and 1 of which the model says nothing."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := scoreOf(tables, "shm"); got != "0 of 0 rows within a factor of 1.5." {
		t.Errorf("of another transport: %q", got)
	}
	var text bytes.Buffer
	tables[0].print(&text)
	want := `
### broadcast, tcp, 2 ranks

| bytes | algorithm | predicted | measured | ratio |
| ----: | --------: | --------: | -------: | ----: |
|    64 |    * good |      6.00 |     4.00 |  1.50 |
|    64 |       low |      4.00 |     6.20 |  0.65 |
|    64 |      high |      6.20 |     4.00 |  1.55 |
|    64 |   unknown |         - |     14.0 |     - |
`
	if text.String() != want {
		t.Errorf("%s\nwant%s", text.String(), want)
	}
	if err := tables[0].add("oops", 0, launches); err == nil {
		t.Error("a line that is not a row is taken for one")
	}
}

// ddpbatch bench can explain every collective in the list.
func TestKnownCollectivesAreExplained(t *testing.T) {
	for _, name := range knownCollectives {
		var o collbench.Options
		if err := o.SetNames(name, "float32", "sum"); err != nil {
			t.Fatal(err)
		}
		o.Explain, o.Transport, o.Algorithm, o.Begin, o.End, o.Factor, o.Budget = true, "tcp", "auto", 4, 4, 2, 1e6
		if err := o.Check(func(string) bool { return false }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
