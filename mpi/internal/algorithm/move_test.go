package algorithm

import (
	"math/rand/v2"
	"testing"
)

// Gloo's numbers of ranks (reference/collectives.md, 4.6).
var glooSizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 32}

// Gloo's counts, of elements of 4 bytes. The most are left to small groups.
func TestMoveSizes(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range glooSizes {
				for _, count := range []int{0, 1, 10, 64, 100, 1000, 10000} {
					if size*count > 20000 {
						continue
					}
					for _, root := range m.roots(size) {
						if j := evenJob(size, 4*count, root); m.takes(j) {
							move(t, localGroup{}, m, j)
						}
					}
				}
			}
		})
	}
}

func move(t *testing.T, g localGroup, m mover, j job) localTraffic {
	t.Helper()
	traffic, errs := g.Try(len(j.lengths), func(p *localPort) error { return m.perform(p, j) })
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("%s, rank %d, root %d, blocks of %v bytes: %v", m.name, rank, j.root, j.lengths, err)
		}
	}
	return traffic
}

// Blocks of several segments, whatever the order in which they arrive.
func TestMoveLong(t *testing.T) {
	for _, m := range movers() {
		if !m.cuts() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{2, 3, 4} {
				for _, root := range m.roots(size) {
					if j := evenJob(size, 2*segmentBytes+3, root); m.takes(j) {
						move(t, localGroup{Lazy: true, Rendezvous: true, Seed: uint64(size)}, m, j)
					}
				}
			}
		})
	}
}

// Every number of ranks and every root, blocks of unlike lengths, some of them empty.
func TestMoveUneven(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			for size := 1; size <= 17; size++ {
				for root := range size {
					if !m.rooted && root > 1 {
						break // the others are the same again
					}
					j := evenJob(size, random.IntN(4), root)
					if m.uneven {
						for i := range j.lengths {
							j.lengths[i] = max(0, random.IntN(40)-10)
						}
					}
					if m.takes(j) {
						move(t, localGroup{Lazy: true, Seed: uint64(root)}, m, j)
					}
				}
			}
		})
	}
}

// One block much longer than the others.
func TestMoveOneLongBlock(t *testing.T) {
	for _, m := range movers() {
		if !m.cuts() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for i := range 4 {
				j := job{lengths: make([]int, 4), root: 1}
				j.lengths[i] = 2*segmentBytes + 1
				move(t, localGroup{Lazy: true}, m, j)
			}
		})
	}
}

func FuzzMoves(f *testing.F) {
	f.Add(uint8(3), uint8(0), uint8(0), uint64(1), []byte{1, 0, 200, 7})
	f.Add(uint8(8), uint8(1), uint8(5), uint64(2), []byte{0})
	f.Add(uint8(31), uint8(2), uint8(1), uint64(3), []byte{255, 255, 3})
	all := movers()
	f.Fuzz(func(t *testing.T, size, root, which uint8, seed uint64, lengths []byte) {
		m, n := all[int(which)%len(all)], int(size)%32+1
		j := evenJob(n, len(lengths)%100, int(root)%n)
		for i := range j.lengths {
			if m.uneven && i < len(lengths) {
				j.lengths[i] = int(lengths[i])
			}
		}
		if !m.takes(j) {
			return
		}
		for _, g := range []localGroup{{}, {Lazy: true, Seed: seed}, {Lazy: true, Rendezvous: true, Seed: seed}} {
			move(t, g, m, j)
		}
	})
}
