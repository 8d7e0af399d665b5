//go:build !race && !noasm

package block

import "golang.org/x/sys/cpu"

var assembly = cpu.X86.HasAVX2

// For rows of 2 values or more, 4 or more, and 8 or more. There is at least one row, and nothing beyond the blocks is touched.

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
