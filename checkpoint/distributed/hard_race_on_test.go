//go:build race

package distributed_test

// The race detector makes these tests many times slower.
const hardRace = true
