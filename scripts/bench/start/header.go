package main

import (
	"fmt"
	"io"
	"strings"

	bench "ddpbatch/scripts/bench/internal/report"
)

// method is how all is timed.
const method = `
"met" is the time from the command until rank 0's line has come that all ranks are past their library's initialisation and a barrier; "ended" until
the command has ended. Ranks do nothing else. Sides are launched in turn, %d times, each turn beginning with another one, after one that does not
count. "ratio" is that of times until they met, ours (the first row) / theirs, launch by launch, its median, and the interval between order
statistics that holds it with %s; "win": all of the interval is below 1; "lose": all above, or a launch of ours failed.`

// header says what was compared, on what and how.
type header struct {
	bench.Stamp
	Versions []string `json:"versions"`
	Commands []string `json:"commands"` // none where nothing is launched beside peers
	Method   string   `json:"method"`   // likewise
}

func newHeader(o options, p prepared) header {
	h := header{
		Stamp:    bench.NewStamp(),
		Versions: []string{p.version},
	}
	if len(p.contests) == 0 {
		return h
	}
	h.Method = fmt.Sprintf(method, o.launches, bench.Certainty(o.launches))
	for _, c := range p.contests {
		for _, s := range c.sides {
			if s.version != "" {
				h.Versions = append(h.Versions, s.version)
			}
			h.Commands = append(h.Commands, bench.CommandLine(s.command(o.ranks[len(o.ranks)-1])))
		}
	}
	return h
}

func (h header) print(w io.Writer) {
	fmt.Fprintf(w, "- %s\n- %s\n", h.Line(), strings.Join(h.Versions, "; "))
	for _, line := range h.Commands {
		fmt.Fprintf(w, "- `%s`\n", line)
	}
	fmt.Fprintln(w, h.Method)
}
