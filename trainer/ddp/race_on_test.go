//go:build race

package ddp

// raceEnabled reports whether the race detector, which allocates, is active.
const raceEnabled = true
