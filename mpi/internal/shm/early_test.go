package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"ddpbatch/internal/testkit"
)

// short are the inline calls that some ranks leave early. Rank 0 is the root.
var short = map[string]struct {
	call  func(m *member, fingerprint Fingerprint) error
	early func(rank int) bool // the rank does not wait for others
}{
	"broadcast": {
		func(m *member, f Fingerprint) error { return m.node.Broadcast(m.w, f, make([]byte, copyLimit), 0) },
		func(rank int) bool { return rank == 0 },
	},
	"reduce": {
		func(m *member, f Fingerprint) error { return m.node.Reduce(m.w, f, make([]byte, splitFrom), 0, mixed) },
		func(rank int) bool { return rank != 0 },
	},
	"gather": {
		func(m *member, f Fingerprint) error {
			return m.node.Gather(m.w, m.p, f, make([]byte, 3*inlineSize), evenBounds(inlineSize, 3), make([]byte, inlineSize), 0)
		},
		func(rank int) bool { return rank != 0 },
	},
	"scatter": {
		func(m *member, f Fingerprint) error {
			return m.node.Scatter(m.w, m.p, f, make([]byte, inlineSize/2), make([]byte, 3*inlineSize/2), evenBounds(inlineSize/2, 3), 0)
		},
		func(rank int) bool { return rank == 0 },
	},
	"gather_v": {
		func(m *member, f Fingerprint) error {
			return m.node.GatherV(m.w, m.p, f, make([]byte, 9000), []int{0, 3000, 6000, 9000}, make([]byte, 3000), 0)
		},
		func(rank int) bool { return rank != 0 },
	},
	"scatter_v": {
		func(m *member, f Fingerprint) error {
			return m.node.ScatterV(m.w, m.p, f, make([]byte, 4), make([]byte, 12), []int{0, 4, 8, 12}, 0)
		},
		func(rank int) bool { return rank == 0 },
	},
	"scan": {
		func(m *member, f Fingerprint) error { return m.node.Scan(m.w, f, make([]byte, splitFrom), mixed) },
		func(rank int) bool { return rank == 0 },
	},
}

// A rank that needs no data from others returns before any of them has come. It does not return from a second call or from CatchUp.
func TestRankIsAheadByOneCall(t *testing.T) {
	for what, tt := range short {
		for _, last := range []string{what, "barrier", "catchUp"} {
			t.Run(what+"/"+last, func(t *testing.T) {
				members := group(t, 3)
				m := members[0]
				if !tt.early(0) {
					m = members[1]
				}
				if !m.node.CaughtUp() {
					t.Error("not caught up before the first call")
				}
				testkit.Within(t, testkit.Patience, func() {
					if err := tt.call(m, Fingerprint{1}); err != nil {
						t.Error(err)
					}
				})
				if m.node.CaughtUp() {
					t.Error("caught up, and no other rank has come")
				}
				m.w.failed.Store(true) // every wait ends as soon as it begins
				var err error
				switch last {
				case "barrier":
					err = m.node.Barrier(m.w, Fingerprint{2})
				case "catchUp":
					err = m.node.CatchUp(m.w)
				default:
					err = tt.call(m, Fingerprint{2})
				}
				if !errors.Is(err, errGroupFailed) {
					t.Errorf("the next call returned %v without the others", err)
				}
			})
		}
	}
}

// If ranks left different calls early, the next call, or CatchUp, returns an error on each of them that shows the calls that differed.
func TestRanksThatLeftDifferentCallsLearnSo(t *testing.T) {
	for _, catchUp := range []bool{false, true} {
		members := group(t, 2)
		errs := together(members, func(m *member) error {
			m.w.failed = new(atomic.Bool) // each rank finds out by itself
			// Each rank calls Broadcast as the root.
			if err := m.node.Broadcast(m.w, Fingerprint{1, uint64(m.rank)}, make([]byte, 8), m.rank); err != nil {
				t.Errorf("rank %d: %v", m.rank, err)
			}
			if catchUp {
				return m.node.CatchUp(m.w)
			}
			return m.node.Barrier(m.w, Fingerprint{2})
		})
		for rank, err := range errs {
			var diff *FingerprintError
			other := uint64(1 - rank)
			want := FingerprintError{Rank: 1 - rank, Fingerprint: Fingerprint{1, other}, Own: Fingerprint{1, uint64(rank)}}
			if !errors.As(err, &diff) || *diff != want {
				t.Errorf("rank %d got %v, want %v", rank, err, want)
			}
		}
	}
}

// The data of each call is its own, whether ranks leave the calls early or not, in any order of calls.
func TestEarlyCallsKeepTheirData(t *testing.T) {
	for _, size := range []int{2, 4} {
		members := group(t, size)
		errs := together(members, func(m *member) error {
			dice := rand.New(rand.NewPCG(uint64(size), 6)) // the same on all ranks
			for call := range 200 {
				root, length := dice.IntN(size), []int{4, wordSize, 128, splitFrom, splitFrom + 4, copyLimit}[dice.IntN(6)]
				buf := make([]uint32, length/4)
				for i := range buf {
					buf[i] = uint32(call*size + m.rank + i)
				}
				inputs := make([][]uint32, size)
				for rank := range inputs {
					for i := range buf {
						inputs[rank] = append(inputs[rank], uint32(call*size+rank+i))
					}
				}
				want, f := bytesOf(inputs[m.rank]), Fingerprint{uint64(call)}
				var err error
				switch kind := dice.IntN(8); {
				case kind < 4:
					err, want = m.node.Broadcast(m.w, f, bytesOf(buf), root), bytesOf(inputs[root])
				case kind < 7:
					err = m.node.Reduce(m.w, f, bytesOf(buf), root, mixed)
					if m.rank == root {
						want = bytesOf(canonical(inputs))
					}
				default:
					err, want = m.node.AllReduce(m.w, f, bytesOf(buf), mixed), bytesOf(canonical(inputs))
				}
				if err != nil || !bytes.Equal(bytesOf(buf), want) {
					return fmt.Errorf("rank %d, call %d of %d bytes, root %d: other data, or %v", m.rank, call, length, root, err)
				}
			}
			return m.node.CatchUp(m.w)
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}
