// Package tile multiplies two packed panels of float64: the inner loop of a matrix product.
//
// # Bits
//
// Elements of panels hold float32 values, so a product of two is exact in float64 (48 bits of 53), and an element of the tile is the
// sum of its products from the first to the last, with each addition rounded once. Fused or not, in vectors of any width or one by one,
// that gives the same bits: on every machine, with and without assembly, except for which NaN is the result.
// With arbitrary float64 values it would not.
//
// It is written in plain Go, and in assembly for amd64, for AVX-512 and for AVX2 with FMA; the best for the CPU is chosen when the program
// starts, and the tag noasm leaves out assembly. Race builds run it, too:
// panels and tiles are their caller's own memory, in which the detector has nothing to find.
package tile
