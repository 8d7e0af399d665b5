//go:build !race

package distributed

// sparse: every other crash point is tried, of every rank other ones.
const sparse = 2
