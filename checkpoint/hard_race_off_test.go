//go:build !race

package checkpoint_test

const hardRace = false
