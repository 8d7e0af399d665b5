//go:build race

package thin

// Race reports whether the race detector is enabled.
const Race = true
