// Package thin reduces the number of cases of tests that try many: with -short, and under the race detector, which makes them many times
// slower. The line of such a test's function ends with the comment "without the race detector", or "also without the race detector" if the
// test also runs with it. scripts/test then runs all of its cases without it.
package thin
