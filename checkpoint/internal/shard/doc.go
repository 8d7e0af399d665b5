// Package shard reads and writes shard files: what one rank has of a checkpoint.
//
// A shard is a header, chunks back to back, a table of the chunks and a trailer. It holds pieces, each a run of
// bytes of one tensor. Each piece is cut into chunks of 256 KiB by itself, so that damage has a tensor's name and a
// reader can take one piece, or a part of one, alone. docs/format.md gives every byte. Version 2 is written; versions
// 1 and 2 are read.
//
// # Guarantees
//
//   - Every byte is under a CRC-32C. Open holds size, header, trailer and table against each other, against the
//     pieces that the manifest names, and against the manifest's checksum of the whole file, which it computes from the
//     table: it reads no chunk. Read and Verify check each chunk that they touch, and of one that is a difference also
//     what it becomes, so that a base other than the writer's gives an error and not other data.
//   - What is wrong with the bytes is a *Damage, which names piece and chunk, or a *Newer. Every other error is the
//     file's own.
//   - Nothing is allocated for lengths that do not fit the size of the file. An open Reader takes 24 bytes a chunk
//     and 8 a piece; each goroutine that reads takes up to 2 MiB more, and a decoder.
//   - The bytes of a shard are a function of header, pieces, data and codec, whatever the number of workers.
//   - Goroutines end before the call that started them returns.
//
// # Conventions
//
// Numbers in the file are little-endian. Chunks are counted from 0 over the whole shard inside this package, and
// from 1 within their piece in errors. Arguments that do not fit each other panic.
//
// # Limits
//
// A shard has at most 2^49 raw bytes and 2^32 - 1 chunks. It is written
// front to back and never changed. Write takes up to 1 MiB of buffers and 2 MiB a worker for what it stores, besides the
// encoders and 16 bytes a chunk; chunks that are stored raw take none. Pieces that are not in memory (Source.From) take as
// much once more for what is read of them.
package shard
