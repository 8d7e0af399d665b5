package algorithm

import "testing"

// Any group, any length and any delivery give the canonical result.
func FuzzReductions(f *testing.F) {
	f.Add(uint8(4), uint16(100), uint8(0), uint64(1), true, true)
	f.Add(uint8(10), uint16(3), uint8(7), uint64(2), true, false)
	f.Add(uint8(17), uint16(9000), uint8(3), uint64(3), false, true)
	f.Fuzz(func(t *testing.T, ranks uint8, n uint16, which uint8, seed uint64, lazy, rendezvous bool) {
		size := int(ranks)%40 + 1
		cases := reductionCases(size, int(n), witness.Size)
		c := cases[int(which)%len(cases)]
		op := witness
		if !c.canonical {
			op = int64Sum
			c = reductionCases(size, int(n), op.Size)[int(which)%len(cases)]
		}
		c.check(t, localGroup{Lazy: lazy, Rendezvous: rendezvous, Seed: seed}, op.oracle(op.inputs(size, int(n), seed)))
	})
}
