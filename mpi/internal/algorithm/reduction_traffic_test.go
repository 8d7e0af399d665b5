package algorithm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// allReduceTraffic is what an all-reduce of n bytes may cost: messages in sequence, and the bytes that the
// busiest rank sends and that all do.
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

// doublingFan is how many messages the last rank sends if all of its blocks are short: one for each
// rank of the left blocks, shared among those of its own.
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

// doublingSum is all messages: each pair of blocks exchanges as many as the two have ranks.
func doublingSum(size int) int {
	sum := 0
	for m := 1; m < size; m *= 2 {
		for left := 0; left+m < size; left += 2 * m {
			sum += min(2*m, size-left)
		}
	}
	return sum
}

func TestAllReduceTraffic(t *testing.T) {
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

// Two ranks and few bytes: nothing but one message each way.
func TestSmallestExchange(t *testing.T) {
	o := int64Sum.oracle(int64Sum.inputs(2, 1, 6))
	for _, c := range reductionCases(2, 1, 8) {
		if c.name == "allreduce recursive_doubling" {
			if got := c.check(t, localGroup{}, o); got.Messages[0] != 1 || got.Messages[1] != 1 {
				t.Errorf("%v messages", got.Messages)
			}
		}
	}
}

// The costs are those of the algorithms played on ports that have the model's speeds, within a factor
// of two. What is only copied is no business of the ports.
func TestReductionCosts(t *testing.T) {
	for name, m := range map[string]Machine{
		"network":       {Alpha: 20e-6, Beta: 1e-9, Gamma: 0.2e-9},
		"shared memory": {Alpha: 1e-6, Beta: 0.2e-9, Gamma: 0.3e-9},
	} {
		for _, size := range []int{2, 4, 5} {
			for _, length := range []int{8, 32 << 10, 3 << 18} {
				in := make([]byte, length)
				for _, c := range reductionCases(size, length/8, 8) {
					if strings.HasSuffix(c.name, "growing") || strings.HasSuffix(c.name, "to one") ||
						strings.Contains(c.name, " to ") && !strings.HasSuffix(c.name, " to 1") {
						continue // the costs are those of even blocks, and of any root
					}
					got := localGroup{Machine: m}.Run(t, size, func(p *localPort) error {
						r := Reduction{Size: 8, Kernel: func(dst, _, _ []byte) { p.Reduce(len(dst)) }}
						_, err := c.run(p, in, r)
						return err
					}).Time
					if strings.HasPrefix(c.name, "reduce-scatter halving") {
						got += m.copied(size, float64(length))
					}
					if ratio := c.cost(m, size, length) / got; ratio < 0.5 || ratio > 2 {
						t.Errorf("%s, %s, %d ranks, %d bytes: reckoned %.3g times %.3g s", name, c.name, size, length, ratio, got)
					}
				}
			}
		}
	}
}

// A failed wait is returned, wherever it happens, and a rank that has failed does not go on.
func TestReductionErrors(t *testing.T) {
	const n = 20
	for _, size := range []int{2, 3, 4} {
		inputs := int64Sum.inputs(size, n, 8)
		for _, c := range reductionCases(size, n, 8) {
			for rank := range size {
				for wait, failed := 1, true; failed; wait++ {
					_, errs := localGroup{FailRank: rank, FailWait: wait}.Try(size, func(p *localPort) error {
						_, err := c.run(p, inputs[p.rank], int64Sum.Reduction)
						return err
					})
					failed = errs[rank] != nil
					if failed && !errors.Is(errs[rank], errInjected) {
						t.Fatalf("%s, %d ranks: after wait %d failed, rank %d has %v", c.name, size, wait, rank, errs[rank])
					}
				}
			}
		}
	}
}

// A rank that does not come, or comes alone, is noticed by somebody in the same call.
func TestReductionAbsence(t *testing.T) {
	const n = 20
	for _, size := range []int{2, 3, 5, 8} {
		for _, n := range []int{0, n} {
			inputs := int64Sum.inputs(size, n, 9)
			for _, c := range reductionCases(size, n, 8) {
				for one := range size {
					comes := func(alone bool) []error {
						_, errs := localGroup{}.Try(size, func(p *localPort) error {
							if (p.rank == one) != alone {
								return nil
							}
							_, err := c.run(p, inputs[p.rank], int64Sum.Reduction)
							return err
						})
						return errs
					}
					if errs := comes(true); errs[one] == nil {
						t.Fatalf("%s, %d elements: rank %d of %d returned alone", c.name, n, one, size)
					}
					if errs := comes(false); errors.Join(slices.Delete(errs, one, one+1)...) == nil {
						t.Fatalf("%s, %d elements: without rank %d of %d, all returned", c.name, n, one, size)
					}
				}
			}
		}
	}
}
