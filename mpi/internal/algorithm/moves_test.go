package algorithm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// glooSizes are the numbers of ranks in Gloo's tests (gloo/test).
var glooSizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 32}

// Movers take Gloo's counts of elements of 4 bytes. Only small groups take the largest counts.
func TestMovesTakeGloosCounts(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range glooSizes {
				for _, count := range []int{0, 1, 10, 64, 100, 1000, 10000} {
					if size*count > 20000 {
						continue
					}
					for _, root := range m.roots(size) {
						if j := evenPayload(size, 4*count, root); m.takes(j) {
							move(t, localGroup{}, m, j)
						}
					}
				}
			}
		})
	}
}

func move(t *testing.T, g localGroup, m mover, j payload) localTraffic {
	t.Helper()
	traffic, errs := g.Try(len(j.lengths), func(p *localPort) error { return m.perform(p, j) })
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("%s, rank %d, root %d, blocks of %v bytes: %v", m.name, rank, j.root, j.lengths, err)
		}
	}
	return traffic
}

// Movers take blocks of several segments, which arrive in any order.
func TestMovesTakeLongBlocks(t *testing.T) {
	for _, m := range movers() {
		if !m.cuts() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{2, 3, 4} {
				for _, root := range m.roots(size) {
					if j := evenPayload(size, 2*segmentBytes+3, root); m.takes(j) {
						move(t, localGroup{Lazy: true, Rendezvous: true, Seed: uint64(size)}, m, j)
					}
				}
			}
		})
	}
}

// Movers take blocks of different lengths, some of them empty, with every number of ranks up to 17 and every root.
func TestMovesTakeUnevenBlocks(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			for size := 1; size <= 17; size++ {
				for root := range size {
					if !m.rooted && root > 1 {
						break // further roots would repeat the same case
					}
					j := evenPayload(size, random.IntN(4), root)
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

func TestMovesTakeOneLongBlock(t *testing.T) {
	for _, m := range movers() {
		if !m.cuts() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for i := range 4 {
				j := payload{lengths: make([]int, 4), root: 1}
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
		j := evenPayload(n, len(lengths)%100, int(root)%n)
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

// The rule of the package: if some ranks make a call that the others do not make, at least one of them must wait, in the call or after it
// for what it expects. At least one of them must also have sent a message to a rank that does not make the call, so that this rank learns
// of it.
func TestNoCallIsMadeByAFewUnnoticed(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			for size := 2; size <= 6; size++ {
				for _, root := range m.roots(size) {
					for _, length := range []int{0, 3} {
						for few := 1; few < 1<<size-1; few++ {
							if j := evenPayload(size, length, root); m.takes(j) {
								callAlone(t, m, j, few)
							}
						}
					}
				}
			}
		})
	}
}

// callAlone makes the call only on the ranks whose bit is set in few.
func callAlone(t *testing.T, m mover, j payload, few int) {
	size := len(j.lengths)
	calls := func(rank int) bool { return few>>rank&1 == 1 }
	ports := make([]*localPort, size)
	_, errs := localGroup{}.Try(size, func(p *localPort) error {
		ports[p.rank] = p
		if !calls(p.rank) {
			return nil
		}
		return m.perform(p, j)
	})
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, errDeadlock) }) {
		t.Errorf("of %d ranks, %b call with root %d, and nobody misses the others", size, few, j.root)
	}
	for rank, p := range ports {
		for _, o := range p.ops {
			if calls(rank) && o.send && !calls(o.to) {
				return
			}
		}
	}
	t.Errorf("of %d ranks, %b call with root %d, and do not notify the others", size, few, j.root)
}

// A rank that gets nothing from any other returns even if it is alone. Such ranks are the root of a broadcast or scatter, and the leaves of
// a gather's tree.
func TestRankThatReceivesNothingReturnsAlone(t *testing.T) {
	const size = 5
	alone := func(name string, rank int, perform func(p *localPort) error) {
		t.Helper()
		returned := false
		localGroup{}.Try(size, func(p *localPort) error {
			if p.rank != rank {
				return nil
			}
			err := perform(p)
			returned = err == nil
			return err
		})
		if !returned {
			t.Errorf("%s: rank %d waits for others", name, rank)
		}
	}
	for _, m := range movers() {
		const root = 1
		rank := root
		switch {
		case m.name == "broadcast/scatter_allgather" || !m.rooted:
			continue // each rank gets something
		case strings.HasPrefix(m.name, "gather/"):
			rank = root + 1 // the first child of every tree here, and a leaf
		}
		alone(m.name, rank, func(p *localPort) error { return m.perform(p, evenPayload(size, 3, root)) })
	}
	r := Reduction{Kernel: func(dst, a, b []byte) { copy(dst, a) }, Size: 1}
	for _, e := range Reduces() {
		if e.Name == "scatter_gather" {
			continue // each rank reduces a part
		}
		alone("reduce/"+e.Name, size-1, func(p *localPort) error { return e.Run(p, make([]byte, 3), 1, r) })
	}
	for _, e := range slices.Concat(Scans(), Exscans()) {
		if e.Name == "linear" { // by doubling, ranks exchange what they have
			alone("scan/"+e.Name, 0, func(p *localPort) error { return e.Run(p, make([]byte, 3), r) })
		}
	}
}

// The first error of a port ends an algorithm at once, wherever it occurs.
func TestMoveEndsAtTheFirstError(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			const size = 4
			for _, root := range m.roots(size) {
				for rank := range size {
					for wait := 1; ; wait++ {
						reached := false
						g := localGroup{FailRank: rank, FailWait: wait}
						_, errs := g.Try(size, func(p *localPort) error {
							err := m.perform(p, evenPayload(size, 5, root))
							if p.rank == rank {
								reached = p.waits >= wait
								if reached && p.waits > wait {
									t.Errorf("rank %d waits on after its wait %d has failed", rank, wait)
								}
							}
							return err
						})
						if !reached {
							break
						}
						if !errors.Is(errs[rank], errInjected) {
							t.Errorf("rank %d, whose wait %d failed, returned %v", rank, wait, errs[rank])
						}
					}
				}
			}
		})
	}
}

// The tables have the properties on which the rest of mpi relies.
func TestMoveTablesAreConsistent(t *testing.T) {
	checkTable(t, "broadcast", Broadcasts(), Broadcasts())
	checkTable(t, "all_gather", AllGathers(), AllGathers())
	checkTable(t, "gather", Gathers(), GathersV())
	checkTable(t, "scatter", Scatters(), ScattersV())
	checkTable(t, "all_to_all", AllToAlls(), AllToAllsV())
	checkTable(t, "barrier", Barriers(), Barriers())
}

func checkTable[F any](t *testing.T, what string, all, uneven []Entry[F]) {
	t.Helper()
	if !strings.HasPrefix(names(all), names(uneven)) {
		t.Errorf("%s: %s, but for blocks of different lengths %s", what, names(all), names(uneven))
	}
	if !slices.ContainsFunc(uneven, func(e Entry[F]) bool { return e.Fits == nil }) {
		t.Errorf("%s: no algorithm fits every group", what)
	}
	codes := map[uint8]string{}
	for _, e := range all {
		if other, twice := codes[e.Code]; twice || e.Code == 0 {
			t.Errorf("%s: %s has the code %d, %q has it too", what, e.Name, e.Code, other)
		}
		codes[e.Code] = e.Name
		if !e.Canonical {
			t.Errorf("%s: %s moves bytes only", what, e.Name)
		}
	}
}

func names[F any](entries []Entry[F]) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Name + " ")
	}
	return b.String()
}

func TestMovesDoNotAllocate(t *testing.T) { // without the race detector
	const size, block = 8, 4096
	buf, other, at := make([]byte, size*block), make([]byte, size*block), evenPayload(size, block, 0).at()
	measure := func(name string, run func(p Port) error) {
		t.Helper()
		for rank := range size {
			p := &idlePort{rank, size, make([]byte, 4*len(buf)), make([]Handle, 1000)}
			var err error
			// The runtime may allocate in the meantime, but less than once a run, and AllocsPerRun rounds that down over many runs.
			if n := testing.AllocsPerRun(100, func() { err = run(p) }); n != 0 || err != nil {
				t.Errorf("%s, rank %d: %v allocations a call, error %v", name, rank, n, err)
			}
		}
	}
	for _, e := range Broadcasts() {
		measure("broadcast "+e.Name, func(p Port) error { return e.Run(p, buf, 3) })
	}
	for _, e := range AllGathers() {
		measure("all-gather "+e.Name, func(p Port) error { return e.Run(p, buf, at) })
	}
	for _, e := range Gathers() {
		measure("gather "+e.Name, func(p Port) error { return e.Run(p, buf, at, other[:block], 3) })
	}
	for _, e := range Scatters() {
		measure("scatter "+e.Name, func(p Port) error { return e.Run(p, other[:block], buf, at, 3) })
	}
	for _, e := range AllToAlls() {
		measure("all-to-all "+e.Name, func(p Port) error { return e.Run(p, other, at, buf, at) })
	}
	for _, e := range Barriers() {
		measure("barrier "+e.Name, e.Run)
	}
}

// The tests below are cases of PyTorch (test/distributed/test_c10d_gloo.py) and MPICH (test/mpi/coll), with their values.

var peerSizes = []int{1, 2, 3, 4, 5, 7, 8, 10}

func encode(values []int) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func wantValues(got []byte, want []int) error {
	var values []int
	for ; len(got) >= 8; got = got[8:] {
		values = append(values, int(binary.LittleEndian.Uint64(got)))
	}
	if !slices.Equal(values, want) {
		return fmt.Errorf("%v, want %v", values, want)
	}
	return nil
}

// ends returns the bounds of blocks with counts of values.
func ends(counts []int) []int {
	at := []int{0}
	for _, n := range counts {
		at = append(at, at[len(at)-1]+8*n)
	}
	return at
}

func repeat(value, n int) []int { return slices.Repeat([]int{value}, n) }

// forPeers runs f as every rank, for all entries, with all sizes that fit.
func forPeers[F any](t *testing.T, entries []Entry[F], f func(p Port, run F) error) {
	for _, e := range entries {
		t.Run(e.Name, func(t *testing.T) {
			for _, size := range peerSizes {
				if e.Fits == nil || e.Fits(size) {
					localGroup{Lazy: true, Seed: uint64(size)}.Run(t, size, func(p *localPort) error { return f(p, e.Run) })
				}
			}
		})
	}
}
