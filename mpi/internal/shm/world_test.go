package shm

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

var errGroupFailed = errors.New("the group has failed")

// testWaiter spins, and gives its processor away now and then.
type testWaiter struct {
	failed *atomic.Bool
	spins  int
	yield  func()
	jitter *rand.Rand // not nil: some ranks fall behind now and then
}

func (w *testWaiter) Await(ready func() bool) error {
	for i := 1; !ready(); i++ {
		if i%w.spins != 0 {
			continue
		}
		if w.failed.Load() {
			return errGroupFailed
		}
		w.yield()
	}
	return nil
}

func (w *testWaiter) Entered() { w.Notify() }

// Notify may let the others get as far ahead as they can.
func (w *testWaiter) Notify() {
	if w.jitter != nil && w.jitter.IntN(8) == 0 {
		for range 100 {
			w.yield()
		}
	}
}

// newWaiter is for ranks that are goroutines.
func newWaiter(failed *atomic.Bool) *testWaiter {
	return &testWaiter{failed: failed, spins: 50, yield: runtime.Gosched}
}

func schedYield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// member is one rank of a test's group.
type member struct {
	rank, size   int
	node         *Node
	w            *testWaiter
	area, region *Segment
	opened       []*Segment
	out          []byte // of the job
	sent, got    *Ring  // between ranks 0 and 1
}

// regionSize is the length in bytes of the registered memory of each member.
const regionSize = 64 << 20

func newMember(rank, size int) (*member, error) {
	m := &member{rank: rank, size: size, w: newWaiter(new(atomic.Bool))}
	var err error
	if m.area, err = Create(AreaSize); err != nil {
		return nil, err
	}
	m.region, err = Create(regionSize)
	return m, err
}

// join opens the others' segments: areas and then regions, by rank.
func (m *member) join(handles [2][][HandleSize]byte) error {
	var segments [2][]*Segment
	for kind, of := range handles {
		for rank, encoded := range of {
			own := []*Segment{m.area, m.region}[kind]
			if rank != m.rank {
				h, err := DecodeHandle(encoded[:])
				if err != nil {
					return err
				}
				if own, err = Open(h); err != nil {
					return err
				}
				m.opened = append(m.opened, own)
			}
			segments[kind] = append(segments[kind], own)
		}
	}
	var err error
	if m.node, err = NewNode(m.rank, segments[0]); err != nil {
		return err
	}
	return m.node.Register(segments[1])
}

func (m *member) close() {
	for _, s := range append(m.opened, m.area, m.region) {
		if s != nil {
			s.Close()
		}
	}
}

// group is members in this process, each with mappings of its own.
func group(t testing.TB, size int) []*member {
	t.Helper()
	members := make([]*member, size)
	var handles [2][][HandleSize]byte
	failed := new(atomic.Bool)
	for rank := range members {
		m, err := newMember(rank, size)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.close)
		m.w.failed = failed
		members[rank] = m
		handles[0] = append(handles[0], m.area.Handle().Encode())
		handles[1] = append(handles[1], m.region.Handle().Encode())
	}
	for _, m := range members {
		if err := m.join(handles); err != nil {
			t.Fatal(err)
		}
	}
	return members
}

// together runs f for all members at once; the first error ends the others' waiting.
func together(members []*member, f func(m *member) error) []error {
	return testkit.Each(len(members), func(rank int) error {
		err := f(members[rank])
		if err != nil {
			members[rank].w.failed.Store(true)
		}
		return err
	})
}
