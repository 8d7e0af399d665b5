package thin

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Step returns the step from one case of many to the next: 1 for all cases, or n for fewer.
func Step(n int) int {
	if testing.Short() || Race {
		return n
	}
	return 1
}

// Property calls whole, which draws any number of cases of a property. If there are to be fewer cases, it calls one instead, with a few
// fixed inputs to draw a case from.
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
