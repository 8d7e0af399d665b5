package element

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// arena is four arrays in one piece of memory, at random places with gaps in between.
type arena struct {
	memory, before []byte
	of             [4][]byte
	at             [4]int
}

func newArena(rng *rand.Rand, typ Type, n int) *arena {
	const gap = 256
	size := n * typ.Size()
	m := &arena{memory: make([]byte, 4*(size+gap)+gap)}
	for i := range m.memory {
		m.memory[i] = 0xa5
	}
	for i := range m.of {
		m.at[i] = i*(size+gap) + rng.IntN(gap/typ.Size())*typ.Size()
		m.of[i] = m.memory[m.at[i] : m.at[i]+size : m.at[i]+size]
	}
	return m
}

func (m *arena) freeze() { m.before = bytes.Clone(m.memory) }

// check wants all but the arrays i and j to be as they were.
func (m *arena) check(t *testing.T, i, j int) {
	t.Helper()
	for _, k := range []int{i, j} {
		copy(m.before[m.at[k]:], m.of[k])
	}
	if !bytes.Equal(m.memory, m.before) {
		t.Fatalf("wrote outside its results")
	}
}
