// Package blas provides the trainer's matrix products: its own, [Go], or those of a library of the site, OpenBLAS, BLIS or MKL,
// which is loaded at run time and 3 to 8 times as fast.
//
//	lib, info, err := blas.Open(blas.Config{Library: blas.Auto, Threads: 1})
//	...
//	log.Info("matrix products", "by", info, "advice", info.Advice)
//	lib.Sgemm(...)
//
// [Narrow] returns a Library that multiplies bfloat16 or float16 values.
//
// # Guarantees
//
// A library is used only after it has computed a few products exactly. It is called through the Fortran interface, sgemm_, in both its
// forms, with integers of 32 bits (LP64) and of 64 (ILP64). Its arguments have been checked: lengths, and dimensions below 2^31. Pointers
// that it gets never point to a stack that Go moves. Every Library is safe for concurrent use, and does not allocate in steady state. In
// race builds the race detector learns what is read and written.
//
// The threads that a library starts while it is opened block all signals, and processes started from Go do not inherit what Open sets
// in the environment of C.
//
// # Bits
//
// The same library with the same number of threads on the same kind of CPU gives the same bits for the same call. Another number of threads
// may give others: of 600 products of random shapes, OpenBLAS 0.3.21 with 2 to 4 threads differed from itself with one in 300, because it
// splits the matrices at other places. The products of Go have the same bits on every machine, with and without assembly, and wherever the
// operands are in memory: sums are taken in float64, in a fixed order.
//
// # Cost
//
// Measured on one core of a shared Xeon (AVX-512), float32, best of three runs of BenchmarkProduct, GFLOP/s.
// Without assembly, Go reaches 1 to 2.
//
//	m n k            Go    OpenBLAS 0.3.21
//	64 64 64         33    160
//	256 256 256      45    140
//	512 512 512      37    144
//	64 512 784       47    119
//	128 128 32       33    171
//	16 784 9         15    125
//	32 196 144       32    143
//
// A product of 1 x 1 x 1 takes 70 to 100 ns, also in Go. OpenBLAS takes 4 to 20 ms to load, then 4 MB of resident memory, 10 MB after the
// first large product, and 0.7 MB for each further thread. Its builds for POSIX threads and OpenMP are equally fast in one thread, and in
// two from one caller (190 GFLOP/s at 512 512 512). With several callers OpenMP's threads hinder each other, so callers of a library with
// more than one thread wait for each other; products are expected to come from one goroutine.
//
// # Limits
//
// Libraries are loaded on Linux, amd64 and arm64. The program then needs glibc's loader to start. Built with -tags static it needs nothing
// and loads nothing, and [Auto] selects Go. The number of threads belongs to the library, not to the Library: opening the same file again
// changes it for both. Once a library is loaded, no goroutine may end while it is locked to its thread (runtime.LockOSThread): purego 0.10
// writes one word above its frame (syscall15X on amd64), where a thread that has called it keeps what it needs to exit,
// so the process may crash.
package blas
