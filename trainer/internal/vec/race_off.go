//go:build !race

package vec

const race = false
