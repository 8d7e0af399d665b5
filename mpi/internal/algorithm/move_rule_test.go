package algorithm

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// The rule at the tables: part the ranks in two, and let the one side make a call of which the other knows nothing. Some
// rank that makes it must not return, and must have sent the other side a message, which shows it the call.
func TestNoCallIsMadeByAFewUnnoticed(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			for size := 2; size <= 6; size++ {
				for _, root := range m.roots(size) {
					for _, length := range []int{0, 3} {
						for few := 1; few < 1<<size-1; few++ {
							if j := evenJob(size, length, root); m.takes(j) {
								callAlone(t, m, j, few)
							}
						}
					}
				}
			}
		})
	}
}

// callAlone makes the call on the ranks whose bit is set in few.
func callAlone(t *testing.T, m mover, j job, few int) {
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
	t.Errorf("of %d ranks, %b call with root %d, and tell nobody else", size, few, j.root)
}

// The first error of a port ends an algorithm at once, wherever it comes.
func TestMoveFails(t *testing.T) {
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			const size = 4
			for _, root := range m.roots(size) {
				for rank := range size {
					for wait := 1; ; wait++ {
						reached := false
						g := localGroup{FailRank: rank, FailWait: wait}
						_, errs := g.Try(size, func(p *localPort) error {
							err := m.perform(p, evenJob(size, 5, root))
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

// What the tables must be for the rest of mpi to use them.
func TestMoveTables(t *testing.T) {
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
		if cost := e.Cost(Machine{1, 1, 1}, 1, 100); cost != 0 && !strings.Contains(e.Name, "chain") {
			t.Errorf("%s: %s costs a rank alone %v", what, e.Name, cost)
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
