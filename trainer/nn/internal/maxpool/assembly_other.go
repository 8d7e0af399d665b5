//go:build !amd64 || race || noasm

package maxpool

const assembly = false

func maxRows(*float32, *uint8, *float32, int, int, float32, uint32) { panic("maxpool: no assembly") }

func spreadRows(*float32, *uint8, *float32, int, int) { panic("maxpool: no assembly") }
