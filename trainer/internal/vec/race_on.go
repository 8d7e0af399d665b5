//go:build race

package vec

// race: the detector sees only code from Go's compiler.
const race = true
