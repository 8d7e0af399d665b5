package main

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/stats"
)

// The table is valid Markdown in any case, ratios are those of launches that both sides have, and a failed launch is shown.
func TestPrintIsMarkdown(t *testing.T) {
	nan := math.NaN()
	table := table{Title: "programs", Ranks: 2, Rows: []sideTimes{
		{Row: paired.Row{Side: "ours", Times: stats.Samples{10, 20, 30}}, Ended: stats.Samples{40, 40, 40}},
		{Row: paired.Row{Side: "A", Times: stats.Samples{100, 100, 100}}, Ended: stats.Samples{nan, nan, nan}},
		{Row: paired.Row{Side: "B", Times: stats.Samples{20, nan, nan}}, Ended: stats.Samples{nan, nan, nan}},
	}}
	table.add(1, 2, launchTimes{met: nan, ended: nan, fault: errors.New("start it: no such program")})
	table.compare()
	var text bytes.Buffer
	table.print(&text)
	want := `
### 2 ranks, programs

| side |       met, ms |        range | ratio |     interval | verdict |  ended, ms |
| ---: | ------------: | -----------: | ----: | -----------: | ------: | ---------: |
| ours |          20.0 | 10.0 to 30.0 |       |              |         |       40.0 |
|    A |           100 |   100 to 100 |  0.20 | [0.10, 0.30] |     win | - (0 of 3) |
|    B | 20.0 (1 of 3) | 20.0 to 20.0 |  0.50 |            - |       - | - (0 of 3) |

- B, launch 2: start it: no such program
`
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
}
