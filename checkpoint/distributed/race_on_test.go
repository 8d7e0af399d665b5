//go:build race

package distributed

// sparse is how many of the crash points the race detector's slowness leaves time for: one in so many.
const sparse = 11
