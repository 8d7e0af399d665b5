// Package vec holds the element-wise float32 loops of training, for one core: sums and products of arrays,
// activations and their gradients, softmax and layer norm of a row, the steps of SGD and Adam.
//
// # Conventions
//
// What is written has the name dst (or a gradient's) and comes first. Slices have equal length unless said
// otherwise, any length, 0 too; other lengths are the caller's mistake and panic. dst may be exactly another
// operand; slices that overlap in part give garbage. Functions allocate nothing and keep no state: all may run at
// once, on different memory.
//
// # Kernels
//
// Every kernel is a plain loop in Go. For amd64 those that training waits for are also written in assembly, for
// AVX-512 and for AVX2 with FMA; the CPU's best is chosen when the program starts. Race builds run the plain loops,
// which the detector can see into, and so do builds with the tag noasm.
//
// # Bits
//
// Results are a function of the operands and of the kind of CPU: never of addresses, of the time or of the number of
// threads. Two groups:
//
//   - The same bits on all machines, apart from which NaN comes out, when one does: arithmetic (Add, AddTo, Mul,
//     Scale, Axpy), SumRows, Sum, Dot, SumSquares, Max, Finite, ReLU, ReLUGrad, TanhGrad, SoftmaxGrad, SGD and
//     Adam. Each product is rounded before it is added, square roots and quotients are rounded correctly, and
//     sums are added up in one order, whatever the width of vectors.
//   - The same up to rounding: GELU, GELUGrad, Tanh, Normalize, NormalizeGrad, exponentials and what is made of them
//     (ExpSum, Softmax). The plain loops of these use float64 and package math; assembly uses float32 with FMA, adds in
//     a number of lanes, and has the errors stated with each function.
package vec
