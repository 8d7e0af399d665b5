// Package safetensors reads and writes the file format of https://github.com/huggingface/safetensors exactly as it is specified.
//
// A file is the length of the header, 8 bytes little-endian; the header, one JSON object padded with spaces; and the
// tensors' data, row-major and little-endian, without gaps:
//
//	{"__metadata__":{"format":"pt"},"0.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
//
// # Guarantees
//
//   - Write writes the bytes that the format's own writer writes for the same tensors and metadata: tensors by descending
//     alignment of their type, then by name; JSON without white space, escaped as serde_json does; a header padded to
//     a multiple of 8. Only the order of several metadata fields is the caller's (the format's own writer has none).
//   - A file that Write replaces is replaced whole and durably, or not at all. The tensors are not copied.
//   - Open checks everything: the header has at most 100,000,000 bytes, begins with {, is UTF-8 and contains no name
//     twice, and the tensors cover the data from the first byte to the last without hole or overlap, each with
//     exactly the bytes of its shape. Errors about the bytes match ErrInvalid. A header takes at most some 20 times its own size
//     in memory, however long it claims to be, and a tensor's memory is allocated
//     only once the file is known to have all its bytes.
//
// # Conventions
//
// Tensor.DType has the checkpoint's name of a type ("float32"), and Info.Type the format's ("F32"). Tensors of types that a
// checkpoint does not know can be listed, checked and read as bytes, but ReadFile refuses them.
//
// # Limits
//
// A shape has at most 64 dimensions, and a file at most 1,048,576 tensors and 65,536 metadata fields. Keys other than dtype,
// shape and data_offsets in an entry are refused; the format's own reader ignores them.
package safetensors
