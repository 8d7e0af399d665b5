package main

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/processes"
)

// The rows of a side that fails show that, and the table is valid Markdown in any case.
func TestPrintIsMarkdown(t *testing.T) {
	nan := math.NaN()
	table := filled([]float64{2, 2, 2}, []float64{nan, nan, nan}, []float64{4, nan, 4})
	table.add(0, "A", outcome{Outcome: processes.Outcome{Fault: errors.New("start it: no such program")}})
	table.compare(threeSides)
	var text bytes.Buffer
	table.print(&text)
	want := `
### allreduce, shm, 2 ranks

| bytes | ddpbatch |      A |             B | best peer | ratio | interval | verdict |
| ----: | -------: | -----: | ------------: | --------: | ----: | -------: | ------: |
|    64 |     2.00 | failed | 4.00 (2 of 3) |         - |     - |        - |       - |

0 of 1 comparisons won, 0 even, 0 lost, 1 without a peer or an interval.
- A, launch 1: start it: no such program
`
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
}

// Sides of ddpbatch with other buffers have their own columns, and each row has as many cells as the table has titles.
func TestPrintGivesOursColumnsOfTheirOwn(t *testing.T) {
	sides := append([]side{{name: "ddpbatch+alloc", ours: true}}, threeSides...)
	table := newTable(options{Common: command.Common{Launches: 1}, begin: 4, end: 16, factor: 4}, setting{"allreduce", "shm", 2}, sides)
	for i, s := range sides {
		table.add(0, s.name, outcome{samples: []sample{{4, float64(i + 1), 0}, {16, float64(i + 1), 0}, {99, 1, 0}}})
	}
	table.compare(sides)
	titles := table.titles()
	if strings.Count(strings.Join(titles, ","), "verdict") != 2 {
		t.Errorf("titles %q", titles)
	}
	for _, cells := range table.cells() {
		if len(cells) != len(titles) {
			t.Errorf("%d cells under %d titles: %q", len(cells), len(titles), cells)
		}
	}
	if len(table.Rows) != 2 || len(table.Faults) != len(sides) || !strings.Contains(table.Faults[0], "unexpected row of 99 bytes") {
		t.Errorf("%d rows, faults %q", len(table.Rows), table.Faults)
	}
}
