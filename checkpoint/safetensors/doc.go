// Package safetensors reads and writes the file format of https://github.com/huggingface/safetensors by its exact contract.
//
// A file is the length of the header, 8 bytes little-endian; the header, one JSON object padded with spaces; and the
// tensors' data, row-major and little-endian, without gaps:
//
//	{"__metadata__":{"format":"pt"},"0.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
//
// # Guarantees
//
//   - Write gives the bytes that the format's own writer gives for the same tensors and metadata: tensors by falling
//     alignment of their type, then by name; JSON without white space, escaped as serde_json does; a header padded to
//     a multiple of 8. Only the order of several metadata is the caller's (the format's own writer has none).
//   - A file that Write replaces is replaced whole and durably, or not at all. The tensors are not copied.
//   - Open believes nothing: the header has at most 100,000,000 bytes and begins with {, is UTF-8, names nothing
//     twice, and the tensors cover the data from the first byte to the last without hole or overlap, each with
//     exactly the bytes of its shape. What is wrong with bytes is an error that is ErrInvalid. What is allocated for
//     a header is at most some 20 times its own bytes, however long it claims to be, and a tensor's memory exists
//     only once the file is known to have all its bytes.
//
// # Conventions
//
// Types have the checkpoint's names in Tensor.DType ("float32") and the format's in Info.Type ("F32"). Types that a
// checkpoint does not know can be listed, checked and read as bytes, but ReadFile refuses them by name.
//
// # Limits
//
// A shape has at most 64 dimensions, a file at most 1,048,576 tensors and 65,536 metadata. Keys other than dtype,
// shape and data_offsets in an entry are refused, which the format's own reader passes over.
package safetensors
