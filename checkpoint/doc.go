// Package checkpoint keeps the state of a training run on disk so that a crash, a full disk or a
// flipped bit never costs more than the steps since the last save.
//
// A checkpoint is a folder step-%012d below a run's checkpoints folder. It holds immutable shard
// files with the tensors and MANIFEST.json, which names every shard with its size and checksum.
// The manifest is written last and is the commit record: without it there is no checkpoint. The
// format is written down byte by byte in docs/format.md.
//
// # Guarantees
//
//   - When Save has returned nil, the checkpoint survives a power cut: every file goes through a
//     temporary name in the same folder, is checked for length, synced, closed and renamed, and
//     the folder is synced after it; the shard before the manifest. A file whose sync failed is
//     abandoned, never synced again.
//   - A crash at any moment leaves every committed checkpoint readable. Saving a step again
//     replaces its manifest in one rename; the older shards go after that.
//   - Every byte is under a CRC-32C. Latest and Load read and check all of it, Latest falls back
//     past a checkpoint that is corrupt, and says so.
//   - A superseded attempt (Options.Fence) commits nothing and removes nothing.
//   - Only files with this package's own names are ever removed, only those of this run, and
//     only after a newer commit is durable.
//   - A file is believed only after its lengths fit each other; no allocation is larger than the
//     checked totals imply, and 1 KiB of hostile input costs less than 64 MiB.
//
// # Conventions
//
// All numbers in files are little-endian, tensors are row-major without strides. Equal states
// give equal shard bytes with the same program. Errors are told apart with errors.Is: ErrNone,
// ErrCorrupt (detail in *CorruptError), ErrFormatTooNew, ErrFenced, ErrNoSpace, ErrPermission,
// ErrStale.
//
// # Limits
//
// One shard is written by one rank, in one goroutine; the codecs are zstd and none. The fence is
// asked just before the renames and removals that count, so an attempt that is superseded
// between the answer and the rename can still commit that one checkpoint; it is then a valid one.
package checkpoint
