//go:build !race && !noasm

package maxpool

import "golang.org/x/sys/cpu"

var assembly = cpu.X86.HasAVX2

// maxRows is Max for a number of rows. It may overwrite block-1 results after them, and reads as much further.
//
//go:noescape
func maxRows(y *float32, from *uint8, x *float32, rows, width int, floor float32, element uint32)

// spreadRows is Spread for a number of rows. It may overwrite 2 block-2 values of dx after them, and reads as much further.
//
//go:noescape
func spreadRows(dx *float32, from *uint8, dy *float32, rows, width int)
