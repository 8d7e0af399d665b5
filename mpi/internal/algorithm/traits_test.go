package algorithm

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
)

// On a network that follows the model, no algorithm takes longer than its cost, nor much less: the formulas ignore that trees are not full
// if their size is not a power of two. For cores that copy, the formulas also ignore what ranks have to do while they wait.
func TestMoveCostsMatchTheModel(t *testing.T) {
	network := Machine{Alpha: 1, Beta: 1.0 / 8192}
	cores := Machine{Beta: network.Beta, Both: 2 * network.Beta} // the latencies are those of the network
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			lengths := []int{0, 16, 8192}
			if m.cuts() {
				lengths = append(lengths, 20000) // several segments
			}
			for _, size := range []int{2, 3, 4, 5, 8, 13} {
				for _, length := range lengths {
					for _, root := range m.roots(size) {
						j, n := evenPayload(size, length, root), length*size
						if !m.takes(j) {
							continue
						}
						if strings.HasPrefix(m.name, "broadcast/") {
							n = length
						}
						took := move(t, localGroup{Machine: network}, m, j).Time
						if cost := m.cost(network, size, n); took > cost*(1+1e-9) || took < 0.45*cost {
							t.Errorf("%d ranks, root %d, blocks of %d bytes: took %v, and its cost is %v", size, root, length, took, cost)
						}
						took = move(t, localGroup{Machine: cores}, m, j).Time
						if cost := m.cost(cores, size, n); took > 1.25*cost || took < 0.35*cost {
							t.Errorf("%d ranks that copy, root %d, blocks of %d bytes: took %v, and its cost is %v", size,
								root, length, took, cost)
						}
					}
				}
			}
		})
	}
}

// The predicted costs agree, within a factor of two, with the algorithms simulated on ports with the model's speeds. The ports do not see
// data that is only copied.
func TestReductionCostsMatchTheModel(t *testing.T) {
	for name, m := range map[string]Machine{
		"network":       {Alpha: 20e-6, Beta: 1e-9, Gamma: 0.2e-9},
		"shared memory": {Alpha: 1e-6, Beta: 0.2e-9, Gamma: 0.3e-9},
		"cores":         {Alpha: 1e-6, Beta: 0.1e-9, Both: 0.2e-9, Gamma: 0.1e-9},
	} {
		for _, size := range []int{2, 4, 5} {
			for _, length := range []int{8, 32 << 10, 3 << 18} {
				in := make([]byte, length)
				for _, c := range reductionCases(size, length/8, 8) {
					if strings.HasSuffix(c.name, "growing") || strings.HasSuffix(c.name, "to one") ||
						strings.Contains(c.name, " to ") && !strings.HasSuffix(c.name, " to 1") {
						continue // the predicted costs are for even blocks and for any root
					}
					got := localGroup{Machine: m}.Run(t, size, func(p *localPort) error {
						r := Reduction{Size: 8, Kernel: func(dst, _, _ []byte) { p.Reduce(len(dst)) }}
						_, err := c.run(p, in, r)
						return err
					}).Time
					for name, copies := range map[string]float64{
						"reduce-scatter halving": 1, "allreduce gather_reduce": 1, "scan recursive_doubling": 1,
						"exscan recursive_doubling": 2,
					} {
						if strings.HasPrefix(c.name, name) {
							got += m.copied(copies * float64(length))
						}
					}
					if ratio := c.cost(m, size, length) / got; ratio < 0.5 || ratio > 2 {
						t.Errorf("%s, %s, %d ranks, %d bytes: reckoned %.3g times %.3g s", name, c.name, size, length, ratio, got)
					}
				}
			}
		}
	}
}

// The messages and bytes of all ranks together, and the rounds, are those of the papers, for blocks of b bytes, if size blocks make one
// segment. n is the number of bytes of size blocks.
func TestMoveTrafficIsThatOfThePapers(t *testing.T) {
	type counts struct{ messages, bytes, rounds int }
	any := func(int) bool { return true }
	const b = 1024
	tests := []struct {
		name string
		size func(int) bool // for which sizes the formula holds
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
			sends := 0 // the block for the i'th next rank is sent as often as i has one bits
			for i := range p {
				sends += bits.OnesCount(uint(i))
			}
			return counts{p * l, p * sends * b, l}
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
					j := evenPayload(p, b, root)
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

// deepest returns the height of a binomial tree of p ranks: rank v is as deep as it has one bits.
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

func TestAllReduceTrafficIsBounded(t *testing.T) {
	for _, size := range []int{2, 3, 4, 5, 8, 13, 16} {
		n := size * 64
		o := int64Sum.oracle(int64Sum.inputs(size, n, 5))
		for _, c := range reductionCases(size, n, 8) {
			var name string
			if _, err := fmt.Sscanf(c.name, "allreduce %s", &name); err != nil {
				continue
			}
			got := c.check(t, localGroup{}, o)
			rounds, most, sum := allReduceTraffic[name](size, 8*n, levels(size))
			_, all := got.Sum()
			if got.Rounds > rounds || slices.Max(got.Bytes) > most || all != sum {
				t.Errorf("%s, %d ranks: %d rounds, %d bytes from one rank, %d in all; want at most %d, %d, and %d",
					name, size, got.Rounds, slices.Max(got.Bytes), all, rounds, most, sum)
			}
		}
	}
}

// allReduceTraffic is the most that an all-reduce of n bytes may cost: messages in sequence, the bytes that the busiest rank sends, and the
// bytes that all ranks send.
var allReduceTraffic = map[string]func(size, n, levels int) (rounds, most, sum int){
	"star":               func(p, n, l int) (int, int, int) { return 2, (p - 1) * n, 2 * (p - 1) * n },
	"ring":               func(p, n, l int) (int, int, int) { return 2 * (p - 1), 2 * (p - 1) * n / p, 2 * (p - 1) * n },
	"segmented_ring":     func(p, n, l int) (int, int, int) { return 2 * (p - 1), 2 * (p - 1) * n / p, 2 * (p - 1) * n },
	"halving_doubling":   func(p, n, l int) (int, int, int) { return 2 * l, 2 * (p - 1) * n / p, 2 * (p - 1) * n },
	"swing":              func(p, n, l int) (int, int, int) { return 2 * l, 2 * (p - 1) * n / p, 2 * (p - 1) * n },
	"binomial":           func(p, n, l int) (int, int, int) { return 2 * l, l * n, 2 * (p - 1) * n },
	"double_tree":        func(p, n, l int) (int, int, int) { return 2 * l, 2 * n, 2 * (p - 1) * n },
	"direct":             func(p, n, l int) (int, int, int) { return 2, 2 * (p - 1) * n / p, 2 * (p - 1) * n },
	"gather_reduce":      func(p, n, l int) (int, int, int) { return l, (p - 1) * n, p * (p - 1) * n },
	"recursive_doubling": func(p, n, l int) (int, int, int) { return l, doublingFan(p) * n, doublingSum(p) * n },
}

// doublingFan returns how many messages the busiest rank sends. In each pair of blocks, a rank of the left block sends at most one message.
// The ranks of the right block, which may be shorter, share the messages to all ranks of the left block.
func doublingFan(size int) int {
	most := 0
	for rank := range size {
		sent := 0
		for m := 1; m < size; m *= 2 {
			left := rank / (2 * m) * 2 * m
			short := min(m, size-left-m)
			switch {
			case short <= 0:
			case rank < left+m:
				if rank-left < short {
					sent++
				}
			default:
				for i := range m {
					if i%short == rank-left-m {
						sent++
					}
				}
			}
		}
		most = max(most, sent)
	}
	return most
}

// doublingSum returns the number of all messages: each pair of blocks exchanges as many as the two have ranks.
func doublingSum(size int) int {
	sum := 0
	for m := 1; m < size; m *= 2 {
		for left := 0; left+m < size; left += 2 * m {
			sum += min(2*m, size-left)
		}
	}
	return sum
}
