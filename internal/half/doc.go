// Package half converts between float32 and the two 16-bit floating-point types: float16 (binary16 of IEEE 754: 1 bit of sign, 5 of
// exponent, 10 of fraction) and bfloat16 (the upper half of a float32: 1, 8 and 7). A 16-bit number is represented by its bits, a uint16.
//
// Conversion to 16 bits rounds to the nearest number, and to the even one of two that are equally near; numbers beyond the largest become
// infinity. Conversion from 16 bits is exact. A NaN stays a NaN, becomes quiet, and keeps its sign and as much of its payload as fits;
// conversion from bfloat16 keeps all bits. The results are the same as PyTorch's, bit for bit.
//
// Functions whose names end in s take slices of equal length. dst may be x if both are float32. On amd64 with AVX2 and F16C they use
// assembly, which is as fast as memory, with the same results; race builds, and those with the tag noasm, use plain loops.
package half
