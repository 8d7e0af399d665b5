//go:build race

package checkpoint_test

// The race detector makes these tests many times slower.
const hardRace = true
