//go:build !race && !noasm

package block

import "golang.org/x/sys/cpu"

var assembly = cpu.X86.HasAVX2

// The functions are for rows of at least 2, 4 and 8 values. There must be at least one row. They access nothing beyond the blocks.

//go:noescape
func copy2(dst, src *float32, rows, width, dstPitch, srcPitch int)

//go:noescape
func copy4(dst, src *float32, rows, width, dstPitch, srcPitch int)

//go:noescape
func copy8(dst, src *float32, rows, width, dstPitch, srcPitch int)

//go:noescape
func add2(dst, src *float32, rows, width, dstPitch, srcPitch int)

//go:noescape
func add4(dst, src *float32, rows, width, dstPitch, srcPitch int)

//go:noescape
func add8(dst, src *float32, rows, width, dstPitch, srcPitch int)
