//go:build !amd64 || race || noasm

package block

const assembly = false

// These are never called.
var copy2, copy4, copy8, add2, add4, add8 func(dst, src *float32, rows, width, dstPitch, srcPitch int)
