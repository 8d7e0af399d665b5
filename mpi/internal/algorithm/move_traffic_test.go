package algorithm

import (
	"math/bits"
	"strings"
	"testing"
)

// The messages and bytes of all ranks together, and the rounds, are those of the papers, for blocks of b bytes of which
// size make one segment; n is all of them.
func TestMoveTraffic(t *testing.T) {
	type counts struct{ messages, bytes, rounds int }
	any := func(int) bool { return true }
	const b = 1024
	tests := []struct {
		name string
		size func(int) bool // where the formula holds
		want func(p, l, n int) counts
	}{
		// A hello goes up each edge of a tree.
		{"broadcast/binomial", any, func(p, l, n int) counts { return counts{2 * (p - 1), (p - 1) * n, deepest(p)} }},
		{"broadcast/star", any, func(p, l, n int) counts { return counts{2 * (p - 1), (p - 1) * n, 1} }},
		{"broadcast/chain", any, func(p, l, n int) counts {
			return counts{(p - 1) * (1 + cuts(n, pipelineSegment(n, p-2))), (p - 1) * n, p - 1}
		}},
		{"broadcast/scatter_allgather", powerOfTwo, func(p, l, n int) counts {
			return counts{2*(p-1) + p*(p-1), l*n/2 + (p-1)*n, l + p - 1}
		}},
		{"all_gather/ring", any, func(p, l, n int) counts { return counts{p * (p - 1), (p - 1) * n, p - 1} }},
		{"all_gather/direct", any, func(p, l, n int) counts { return counts{p * (p - 1), (p - 1) * n, 1} }},
		{"all_gather/bruck", any, func(p, l, n int) counts { return counts{p * l, (p - 1) * n, l} }},
		{"all_gather/recursive_doubling", powerOfTwo, func(p, l, n int) counts { return counts{p * l, (p - 1) * n, l} }},
		{"all_gather/neighbour_exchange", even, func(p, l, n int) counts { return counts{p * (p / 2), (p - 1) * n, p / 2} }},
		{"gather/linear", any, func(p, l, n int) counts { return counts{2 * (p - 1), (p - 1) * b, 1} }},
		{"gather/binomial", powerOfTwo, func(p, l, n int) counts { return counts{2 * (p - 1), l * n / 2, l} }},
		{"scatter/linear", any, func(p, l, n int) counts { return counts{2 * (p - 1), (p - 1) * b, 1} }},
		{"scatter/binomial", powerOfTwo, func(p, l, n int) counts { return counts{2 * (p - 1), l * n / 2, l} }},
		{"all_to_all/direct", any, func(p, l, n int) counts { return counts{p * (p - 1), p * (p - 1) * b, 1} }},
		{"all_to_all/pairwise", any, func(p, l, n int) counts { return counts{p * (p - 1), p * (p - 1) * b, p - 1} }},
		{"all_to_all/bruck", any, func(p, l, n int) counts {
			hops := 0 // a block i ranks away goes as many as i has bits
			for i := range p {
				hops += bits.OnesCount(uint(i))
			}
			return counts{p * l, p * hops * b, l}
		}},
		{"barrier/dissemination", any, func(p, l, n int) counts { return counts{p * l, 0, l} }},
		{"barrier/binomial", any, func(p, l, n int) counts { return counts{3 * (p - 1), 0, 2 * deepest(p)} }},
		{"barrier/star", any, func(p, l, n int) counts { return counts{3 * (p - 1), 0, 2} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := moverNamed(t, tt.name)
			for p := 2; p <= 17; p++ {
				if !tt.size(p) {
					continue
				}
				for _, root := range m.roots(p) {
					j := evenJob(p, b, root)
					n := p * b
					if strings.HasPrefix(tt.name, "broadcast/") {
						j.lengths[0] = n
					}
					traffic := move(t, localGroup{}, m, j)
					messages, bytes := traffic.Sum()
					if got, want := (counts{messages, bytes, traffic.Rounds}), tt.want(p, levels(p), n); got != want {
						t.Errorf("%d ranks, root %d: %+v, want %+v", p, root, got, want)
					}
				}
			}
		})
	}
}

// deepest is the height of a binomial tree of p ranks: number v is as deep as it has bits.
func deepest(p int) int {
	most := 0
	for v := range p {
		most = max(most, bits.OnesCount(uint(v)))
	}
	return most
}

func moverNamed(t *testing.T, name string) mover {
	t.Helper()
	for _, m := range movers() {
		if m.name == name {
			return m
		}
	}
	t.Fatalf("there is no %s", name)
	return mover{}
}

// The double tree sends each byte to each rank once, and no rank but root sends more than it gets.
func TestDoubleTreeSharesTheWork(t *testing.T) {
	m := moverNamed(t, "broadcast/double_tree")
	for p := 2; p <= 24; p++ {
		const n = 1 << 13
		j := evenJob(p, n, p/3)
		traffic := move(t, localGroup{}, m, j)
		if _, bytes := traffic.Sum(); bytes != (p-1)*n {
			t.Errorf("%d ranks: %d bytes, want %d", p, bytes, (p-1)*n)
		}
		for rank, sent := range traffic.Bytes {
			if sent > n {
				t.Errorf("%d ranks: rank %d sends %d bytes", p, rank, sent)
			}
		}
	}
}
