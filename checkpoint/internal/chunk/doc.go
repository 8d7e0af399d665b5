// Package chunk encodes and decodes one chunk of a tensor, at most 256 KiB, without loss. Trained weights look random
// to an ordinary compressor, which looks for repetitions and finds none; but the exponents of numbers of similar size
// take few values, and they can be told apart from the rest.
//
// # Method
//
// After ZipNN (Hershcovitch et al., arXiv 2411.05239): elements of floating-point types are rotated left by one bit,
// which brings the 8 exponent bits of float32 and bfloat16 together in the top byte and moves the sign next to the
// mantissa. Then the bytes of equal rank of all elements make a plane, and each plane has a codec of its own:
//
//   - raw: the bytes. So are the low bytes of a mantissa, which are noise.
//   - constant: one byte. The lower half of float32 that holds bfloat16 values, or an update that changed nothing.
//   - huff0: a Huffman code, with its table, in four streams that a CPU decodes at once. Exponents.
//   - zstd: a frame. Planes that are nearly constant, where a Huffman code's least of one bit a byte is too much, and
//     integers, which do repeat.
//
// Where the reader will have an earlier version of the chunk (the base), an encoder may encode the XOR with it: of two
// near floats the sign, the exponent and the top of the mantissa are equal, and cancel to zeros.
//
// The codec of a plane, and whether to take the difference to the base, follow from a sample of 1024 elements: the
// entropy of a plane's bytes, corrected for the sample's size (Miller 1955). Never from timing: the same chunk gives
// the same bytes on every machine, and whatever was encoded before, until klauspost/compress changes. A chunk that would
// not shrink by a 128th is left raw, and then nothing but the sample is looked at. Sampling instead of counting costs
// less than 0.5 % of the size (TestSizesAreNearTheOptimum).
//
// # Guarantees
//
// What comes out of Encode is never longer than the chunk. Decode takes anything: it gives an error or fills exactly
// the length asked for, and allocates no more than its buffers and those of zstd, a few chunks together. Stored bytes
// have no checksum of their own, which is the file format's matter; a difference has one of what it decodes to, since
// the base, too, must be the encoder's. Neither allocates anything in the long run. Encoders and decoders belong
// to one goroutine at a time; there may be many.
//
// # Limits
//
//   - A plane is coded by itself: that exponents of neighbours are alike, or alike from chunk to chunk, gains nothing.
//     A Huffman code spends whole bits: on Gaussian weights 2.59 bits an exponent, whose entropy is 2.55.
//   - huff0 takes at most 256 KiB less one byte: the plane of a whole chunk with elements of one byte goes to zstd.
//   - The exponent is aligned to a byte where it has 8 bits: not in float16 and float64, whose planes mix exponent and
//     mantissa and so save less.
//   - Integers that count up have planes of high entropy, and stay raw where zstd would find the pattern.
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
// Incompressible data cost the sample, 2.7 us for 256 KiB; writing those at 1 GB/s takes a hundred times as long.
// Splitting and joining planes run at 45 to 57 GB/s in assembly, from cache, and at 2.2 to 3 GB/s in Go; the rest of
// the time is huff0's, of which nearly half goes into counting bytes.
package chunk
