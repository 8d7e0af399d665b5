//go:build race

package vec

// race: the detector sees only what Go's compiler made.
const race = true
