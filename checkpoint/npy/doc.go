// Package npy writes tensors as files that numpy.load reads (NEP 1, numpy.lib.format).
//
// A file is the magic \x93NUMPY, a version of two bytes, the little-endian length of the header (2 bytes in version
// 1.0, 4 in 2.0), the header and the elements, row by row. The header is a Python literal such as {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), }, padded with spaces to a newline that ends at a multiple of 64 bytes.
//
// # Guarantees
//
//   - The bytes are those of numpy.save (NumPy 1.23 and later) for the same array.
//   - Values are exact. NumPy has no bfloat16: such a tensor becomes float32, which holds each of its values, including NaNs
//     and the sign of zero.
//   - Only the header is copied; a bfloat16 tensor is widened in small blocks.
//
// # Limits
//
// The float8 types, which NumPy does not have either, are refused. NumPy reads at most 64 dimensions (32 before
// version 2.0); a checkpoint has at most 32.
package npy
