// Package element holds the element types of collectives and the kernels that
// combine arrays of them.
//
// Kernels take bytes, because transports and shared memory hold bytes: elements are stored there as this machine represents them.
// Every kernel is a plain loop in Go. Sums, and other operations for which it pays, are also written in assembly for AVX2 and NEON.
// They give the same bits as the loop, except for which NaN results if one does.
//
// Functions of this package have no state: all may run at once, on different memory.
package element
