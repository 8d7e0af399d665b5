//go:build !race

package ddp

// raceEnabled reports whether the race detector is active, which allocates.
const raceEnabled = false
