package checkpoint_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// thin is the step from one case of many to the next: 1 (all of them), or n with -short or under the race
// detector.
func thin(n int) int {
	if testing.Short() || hardRace {
		return n
	}
	return 1
}

// hardCheck is rapid.Check, or a few cases of it with -short or under the race detector.
func hardCheck(t *testing.T, property func(*rapid.T)) {
	if thin(2) == 1 {
		rapid.Check(t, property)
		return
	}
	one := rapid.MakeFuzz(property)
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 41))
		var input []byte
		for range 4 << 10 {
			input = binary.LittleEndian.AppendUint64(input, rng.Uint64())
		}
		one(t, input)
	}
}
