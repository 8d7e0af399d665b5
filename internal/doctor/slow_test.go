package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// cluster returns the report of n nodes, all pairs of which have 20 us and 10 GB/s, apart from a little noise and what change does.
func cluster(n int, change func(p *Pair)) *Report {
	r := &Report{Backend: "tcp"}
	for i := range n {
		r.Nodes = append(r.Nodes, Node{Host: fmt.Sprintf("n%d", i+1)})
		for j := range i {
			p := Pair{A: j, B: i, Latency: 20*time.Microsecond + time.Duration((i+j)%3)*time.Microsecond,
				Bandwidth: 10e9 - float64((i*7+j)%5)*2e8}
			if change != nil {
				change(&p)
			}
			r.Pairs = append(r.Pairs, p)
		}
	}
	return r
}

func TestSlowNodesAndLinks(t *testing.T) {
	slowNodes := func(nodes ...int) func(p *Pair) {
		return func(p *Pair) {
			if slices.Contains(nodes, p.A) || slices.Contains(nodes, p.B) {
				p.Bandwidth /= 8
			}
		}
	}
	slowLink := func(p *Pair) {
		if p.A == 1 && p.B == 2 {
			p.Latency *= 10
		}
	}
	for _, tt := range []struct {
		name   string
		n      int
		change func(p *Pair)
		want   []string // "nodes: beginning of the finding"
	}{
		{"two", 2, nil, nil},
		{"two that are slow", 2, slowNodes(1), nil}, // with two nodes, the slow one cannot be told apart
		{"three", 3, nil, nil},
		{"one of three", 3, slowNodes(2), []string{"n3: it is slow to all other nodes: 1.25 GB/s at best; usual are 20 us, 9.6 GB/s"}},
		{"one of four", 4, slowNodes(0), []string{"n1: it is slow to all other nodes"}},
		{"two of eight", 8, slowNodes(3, 6), []string{"n4: it is slow to all other nodes", "n7: it is slow to all other nodes"}},
		{"sixty-four", 64, nil, nil},
		{"one of sixty-four", 64, slowNodes(63), []string{"n64: it is slow to all other nodes"}},
		{"a link of three", 3, slowLink, []string{"n[2-3]: 200 us between them; usual are 21 us, 10 GB/s"}},
		{"a link of five", 5, slowLink, []string{"n[2-3]: 200 us between them"}},
		{"a link, and a node", 6, func(p *Pair) { slowLink(p); slowNodes(5)(p) },
			[]string{"n6: it is slow to all other nodes", "n[2-3]: 200 us between them"}},
		{"somewhat slower", 4, func(p *Pair) { p.Bandwidth *= 1 - 0.35*float64(p.A%2) }, nil},
		{"tens of us in shared memory", 4, func(p *Pair) { p.Latency = time.Duration(1+p.A*p.B*3) * time.Microsecond }, nil},
	} {
		var f, wrong findings
		cluster(tt.n, tt.change).network(&f, &wrong)
		ok := len(f) == 1 && len(wrong) == len(tt.want)
		for i, want := range tt.want {
			ok = ok && strings.HasPrefix(wrong[i].Nodes+": "+wrong[i].Found, want) && wrong[i].Level == Warn
		}
		if !ok {
			t.Errorf("%s: %+v, want %q", tt.name, wrong, tt.want)
		}
	}
	var f findings
	(&Report{Nodes: make([]Node, 1)}).network(&f, &f)
	if len(f) > 0 {
		t.Errorf("of one node: %+v", f)
	}
}
