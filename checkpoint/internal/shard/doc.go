// Package shard reads and writes shard files, which hold what one rank saves of a checkpoint.
//
// A shard is a header, chunks back to back, a table of the chunks and a trailer. It holds pieces, each a run of
// bytes of one tensor. Each piece is cut into chunks of 256 KiB by itself, so that damage can be attributed to a tensor and a
// reader can read one piece, or a part of one, alone. docs/format.md specifies every byte. Write writes version 2; Open reads versions
// 1 and 2.
//
// # Guarantees
//
//   - Every byte is covered by a CRC-32C. Open compares size, header, trailer and table with each other, with the
//     pieces in the manifest, and with the manifest's checksum of the whole file, which it computes from the
//     table without reading a chunk. Read and Verify check each chunk that they read. If it is a difference from a base, they also
//     check the result, so that a base other than the writer's gives an error and not other data.
//   - Errors about the bytes are a *Damage, which names piece and chunk, or a *Newer. Every other error comes from
//     the file itself.
//   - Nothing is allocated for lengths that do not fit the size of the file. An open Reader takes 24 bytes a chunk
//     and 8 a piece; each goroutine that reads takes up to 2 MiB more, and a decoder.
//   - The bytes of a shard are a function of header, pieces, data and codec, whatever the number of workers.
//   - Goroutines end before the call that started them returns.
//
// # Conventions
//
// Numbers in the file are little-endian. Inside this package chunks are counted from 0 over the whole shard; errors count
// them from 1 within their piece. The functions panic on arguments that contradict each other.
//
// # Limits
//
// A shard has at most 2^49 raw bytes and 2^32 - 1 chunks. It is written
// front to back and never changed. Write takes up to 1 MiB of buffers, 2 MiB a worker for encoded chunks, the
// encoders, and 16 bytes a chunk; chunks that are stored raw take no buffers. Pieces that are not in memory (Source.From) take
// the same amount again for what is read of them.
package shard
