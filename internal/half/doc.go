// Package half converts between float32 and the two floats of 16 bits: float16 (binary16 of IEEE 754: 1 bit of sign, 5 of exponent, 10 of
// fraction) and bfloat16 (the upper half of a float32: 1, 8 and 7). 16-bit numbers are their bits, a uint16.
//
// To 16 bits means to the nearest, of two as near to the even one; beyond the largest that is infinity. From 16 bits is exact. A NaN stays
// one, becomes a quiet one where that shows, and keeps its sign and what fits of its payload. These are the bits of PyTorch.
//
// Functions with an s at their end take slices of equal length, of which dst may be x where both are float32. On amd64 with AVX2 and F16C
// they are in assembly, as fast as memory, with the same bits; race builds, and those with the tag noasm, run plain loops.
package half
