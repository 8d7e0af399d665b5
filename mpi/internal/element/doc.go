// Package element holds the element types of collectives and the kernels that
// combine arrays of them.
//
// Kernels take bytes, because that is what transports and shared memory have:
// elements lie there as this machine holds them. Every kernel is a plain loop in Go. Sums, and what else is worth
// it, are also written in assembly for AVX2 and NEON, and give the same bits as the loop; the one exception is which
// NaN comes out, when one does.
//
// Functions here keep no state: all may run at once, on different memory.
package element
