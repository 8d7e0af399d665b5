//go:build race

package chunk_test

const race = true
