package thin

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Step is the step from one case of many to the next: 1 (all of them), or n where there are to be fewer.
func Step(n int) int {
	if testing.Short() || Race {
		return n
	}
	return 1
}

// Property calls whole, which draws as many cases of a property as it likes; or, where there are to be fewer, one with a few inputs to
// draw a case from, always the same.
func Property(t *testing.T, whole func(), one func(*testing.T, []byte)) {
	t.Helper()
	if Step(2) == 1 {
		whole()
		return
	}
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 41))
		var input []byte
		for range 4 << 10 {
			input = binary.LittleEndian.AppendUint64(input, rng.Uint64())
		}
		one(t, input)
	}
}
