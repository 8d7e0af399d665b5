//go:build !amd64 || race || noasm

package block

const assembly = false

func copy2(_, _ *float32, _, _, _, _ int) { panic("block: no assembly") }

func copy4(_, _ *float32, _, _, _, _ int) { panic("block: no assembly") }

func copy8(_, _ *float32, _, _, _, _ int) { panic("block: no assembly") }

func add2(_, _ *float32, _, _, _, _ int) { panic("block: no assembly") }

func add4(_, _ *float32, _, _, _, _ int) { panic("block: no assembly") }

func add8(_, _ *float32, _, _, _, _ int) { panic("block: no assembly") }
