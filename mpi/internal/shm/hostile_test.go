package shm

import (
	"errors"
	"testing"

	"ddpbatch/internal/testkit"
)

// What another rank leaves in its slot is checked before it is used.
func TestHostileSlots(t *testing.T) {
	const far = uint64(1)<<refBits - 4
	long := make([]byte, 100_000)
	reduce := func(m *member) error { return m.node.AllReduce(m.w, Stamp{1}, m.region.Bytes()[:len(long)], mixed) }
	for what, tt := range map[string]struct {
		flag, ref uint64
		call      func(m *member) error
	}{
		"flag_ahead":        {2, 0, reduce},
		"no_such_region":    {1, 2 << refBits, reduce},
		"region_none":       {1, 4, reduce},
		"beyond":            {1, 1<<refBits | regionSize - 99_996, reduce},
		"far_beyond":        {1, 1<<refBits | far, reduce},
		"within_an_element": {1, 1<<refBits | 2, reduce},
		"short":             {1, 1 << refBits, func(m *member) error { return m.node.AllReduce(m.w, Stamp{1}, long[:8], mixed) }},
		"broadcast": {1, 1<<refBits | regionSize, func(m *member) error {
			return m.node.Broadcast(m.w, Stamp{1}, long, 1)
		}},
		"all_gather": {1, 1<<refBits | regionSize, func(m *member) error {
			return m.node.AllGather(m.w, Stamp{1}, long, []int{0, 4, len(long)})
		}},
		"reduce_scatter": {1, 1<<refBits | regionSize, func(m *member) error {
			return m.node.ReduceScatter(m.w, Stamp{1}, long[:4], long, []int{0, 4, len(long)}, mixed)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			m := group(t, 2)[0]
			s := m.node.ranks[1].slots[1]
			s.stamp, s.ref = Stamp{1}, tt.ref
			s.flag.Store(tt.flag)
			testkit.Within(t, testkit.Patience, func() {
				if err := tt.call(m); !errors.Is(err, ErrCorrupt) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Clocks that run ahead let a rank read what is not there yet: wrong numbers, as a hostile rank can send
// anyhow, but no more.
func TestHostileClocks(t *testing.T) {
	m := group(t, 2)[0]
	peer := &m.node.ranks[1]
	for kind := range peer.clocks {
		peer.clocks[kind].Store(^uint64(0))
	}
	for call := uint64(1); call < 4; call++ {
		s := peer.slots[call&1]
		s.stamp = Stamp{1}
		s.flag.Store(call)
		if err := m.node.AllReduce(m.w, Stamp{1}, make([]byte, 5*chunkSize+4), mixed); err != nil {
			t.Error(err)
		}
	}
}

// FuzzHostileReference has a rank refer to any memory.
func FuzzHostileReference(f *testing.F) {
	m := group(f, 2)[0]
	f.Add(uint64(1)<<refBits, directFrom, 4)
	f.Add(uint64(1)<<refBits|regionSize, directFrom, 1)
	f.Add(^uint64(0), regionSize, 8)
	f.Fuzz(func(t *testing.T, ref uint64, length, size int) {
		if length < 0 || length > 2*regionSize || size < 1 || size > line {
			return
		}
		m.node.ranks[1].ref = ref
		view, err := m.node.resolve(1, length, size)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		if len(view) != length {
			t.Fatalf("%d bytes, not %d", len(view), length)
		}
		_, _ = view[0], view[length-1] // mapped
	})
}
