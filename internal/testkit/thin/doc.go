// Package thin takes fewer cases of tests that try many: with -short, and under the race detector, which makes them many times slower.
// Such a test says "without the race detector" where it begins, or "also without" where it is to run with it, too: scripts/test then runs
// all of its cases.
package thin
