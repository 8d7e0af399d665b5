//go:build !race

package thin

// Race says whether the race detector is at work.
const Race = false
