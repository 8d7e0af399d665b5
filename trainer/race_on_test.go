//go:build race

package trainer

// raceEnabled tells whether the race detector is at work, which makes kernels ten times as slow.
const raceEnabled = true
