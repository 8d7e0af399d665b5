// Package thin takes fewer cases of tests that try many: with -short, and under the race detector, which makes them many times slower.
// scripts/test runs them all without it.
package thin
