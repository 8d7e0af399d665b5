// Package vec contains the element-wise float32 loops of training, for one core: sums and products of arrays,
// activations and their gradients, softmax and layer norm of a row, and the steps of SGD and Adam.
//
// # Conventions
//
// The destination is named dst (or like a gradient) and comes first. Slices must have equal lengths unless stated
// otherwise, including 0; other lengths are a programming error and panic. dst may be exactly another
// operand; with slices that overlap in part the result is undefined. Functions do not allocate and keep no state, so they may run
// concurrently on different memory.
//
// # Kernels
//
// Every kernel is a plain loop in Go. For amd64 those that take most of training's time are also written in assembly, for
// AVX-512 and for AVX2 with FMA; the best for the CPU is chosen when the program starts. Race builds run the plain loops,
// which the detector can observe, and so do builds with the tag noasm.
//
// # Bits
//
// Results depend only on the operands and the kind of CPU: never on addresses, time or the number of
// threads. There are two groups:
//
//   - The same bits on all machines, except for which NaN a NaN result is: arithmetic (Add, AddTo, Mul,
//     Scale, Axpy), SumRows, Sum, Dot, SumSquares, Max, Finite, ReLU, ReLUGrad, TanhGrad, SoftmaxGrad, SGD and
//     Adam. Each product is rounded before it is added, square roots and quotients are rounded correctly, and
//     sums are added up in one order, whatever the width of vectors.
//   - The same up to rounding: GELU, GELUGrad, Tanh, Normalize, NormalizeGrad, exponentials and what uses them
//     (ExpSum, Softmax). The plain loops of these use float64 and package math; assembly uses float32 with FMA, adds in
//     several lanes, and has the errors stated with each function.
package vec
