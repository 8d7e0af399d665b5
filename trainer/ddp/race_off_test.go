//go:build !race

package ddp

// raceEnabled tells whether the race detector is at work, which allocates.
const raceEnabled = false
