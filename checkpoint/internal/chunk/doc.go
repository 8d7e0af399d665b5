// Package chunk encodes and decodes one chunk of a tensor, at most 256 KiB, without loss. To an ordinary compressor, which
// looks for repetitions, trained weights look random. But the exponents of numbers of similar size
// take few values, and this package compresses them separately from the rest.
//
// # Method
//
// After ZipNN (Hershcovitch et al., arXiv 2411.05239): elements of floating-point types are rotated left by one bit,
// which brings the 8 exponent bits of float32 and bfloat16 together in the top byte and moves the sign next to the
// mantissa. Then the bytes of equal rank of all elements make a plane, and each plane has a codec of its own:
//
//   - raw: the bytes as they are. Used for the low bytes of a mantissa, which are noise.
//   - constant: one byte. Used for the lower half of float32 that holds bfloat16 values, or an update that changed nothing.
//   - huff0: a Huffman code, with its table, in four streams that a CPU decodes at once. Used for exponents.
//   - zstd: a frame. Used for planes that are nearly constant, for which a Huffman code's minimum of one bit a byte is too much, and
//     for integers, which do repeat.
//
// If the reader will have an earlier version of the chunk (the base), an encoder may encode the XOR with it: in two
// close floats the sign, the exponent and the top of the mantissa are equal, and the XOR turns them into zeros.
//
// The codec of a plane, and whether to encode the difference from the base, follow from a sample of 1024 elements: from the
// entropy of a plane's bytes, corrected for the sample's size (Miller 1955). They never depend on timing: the same chunk gives
// the same bytes on every machine, whatever was encoded before, for one version of klauspost/compress. A chunk that would
// not shrink by a 128th is left raw, and then only the sample is looked at. Sampling instead of counting costs
// less than 0.5 % of the size (TestSizesAreNearTheOptimum).
//
// # Guarantees
//
// Encode never returns more bytes than the chunk has. Decode accepts any input: it returns an error or fills exactly
// the length asked for, and allocates no more than its buffers and those of zstd, which are a few chunks together. Stored bytes
// have no checksum of their own, because the file format has one. A difference has a checksum of what it decodes to, because
// the base, too, must be the encoder's. Neither Encode nor Decode allocates in the long run. Encoders and decoders may be used
// by one goroutine at a time; there may be many of them.
//
// # Limits
//
//   - A plane is coded by itself: similarity between the exponents of neighbors, or between chunks, is not used.
//     A Huffman code spends whole bits: on Gaussian weights 2.59 bits an exponent, whose entropy is 2.55.
//   - huff0 takes at most 256 KiB less one byte, so the plane of a full chunk with elements of one byte is coded by zstd.
//   - The exponent is aligned to a byte only if it has 8 bits. In float16 and float64 it has not, so their planes mix exponent and
//     mantissa and save less.
//   - Integers that count up have planes of high entropy, and stay raw although zstd would find the pattern.
//
// # Measured
//
// One goroutine, medians of 5, on an AMD EPYC (Zen 4) at 2 vCPUs, with AVX2; the data are those of package chunktest.
// The ratio is stored bytes a raw byte, the speeds are raw GB/s. ZipNN reached 0.8313 and 0.6623, encoding at 0.40 GB/s
// and decoding at 1.3 (float32) and 0.95 (bfloat16), on another machine of this kind.
//
//	data                                     ratio   encode  decode
//	float32 weights                          0.831     1.7     3.1
//	bfloat16 weights                         0.662     1.2     2.0
//	Adam's m                                 0.837     1.8     2.9
//	Adam's v                                 0.804     1.0     1.8
//	float32 that holds bfloat16              0.331     0.8     1.4
//	float32, XOR after updates of 1e-6       0.444     0.6     1.0
//	float32, XOR after updates of 1e-5       0.538     0.7     1.1
//	float32, XOR after updates of 1e-4       0.643     0.8     1.1
//	bfloat16, XOR after updates of 1e-6      0.040     0.7     1.5
//	bfloat16, XOR after updates of 1e-5      0.110     0.6     1.4
//	bfloat16, XOR after updates of 1e-4      0.284     0.5     0.8
//	incompressible                           1.000      98      29
//
// Incompressible data costs only the sample, 2.7 us for 256 KiB; writing it at 1 GB/s takes a hundred times as long.
// Splitting and joining planes runs at 45 to 57 GB/s in assembly, from cache, and at 2.2 to 3 GB/s in Go. The rest of
// the time is huff0's, which spends nearly half of it counting bytes.
package chunk
