//go:build !race

package distributed_test

const hardRace = false
