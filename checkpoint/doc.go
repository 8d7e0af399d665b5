// Package checkpoint keeps the state of a training run on disk so that a crash, a full disk or a
// flipped bit never costs more than the steps since the last save.
//
// A checkpoint is a folder step-%012d below a run's checkpoints folder. It holds immutable shard
// files with the tensors, one for each rank that had any, and MANIFEST.json, which names every
// shard with its size and checksum. The manifest is written last and is the commit record: a folder
// without one is not a checkpoint. docs/format.md specifies the format byte by byte.
//
// A single process uses Save, Latest and Load. Several ranks write a Draft and read a Checkpoint; package
// checkpoint/distributed does that for them.
//
// # Guarantees
//
//   - Once a commit has returned nil, the checkpoint survives a power cut. Every file is written under a
//     temporary name in the same folder, checked for its length, synced, closed and renamed; then the
//     folder is synced. All shards are durable before the manifest is written. A file whose sync failed
//     is abandoned and never synced again.
//   - A committed file is never overwritten. Every save has a folder of its own: a second save of a step
//     gets the folder step-%012d.ATTEMPT-NONCE, and takes precedence over the first. A save is refused
//     if a later attempt has saved the step already, or has resumed from an earlier step. A crash at any
//     moment leaves every checkpoint whole or gone.
//   - Every byte is covered by a CRC-32C. Find and FindLatest check the manifest, the sizes, the chunk
//     tables and that the tables belong to the manifest, without reading data. Read checks what it reads.
//     Latest, Load and Verify read and check everything. The search for the latest checkpoint passes over
//     a corrupt one and logs that. It returns ErrNone only if the folder shows no trace of a checkpoint
//     since the run last began from nothing. A trace is a folder that was set aside, or the record of an
//     attempt that resumed from a checkpoint. A checkpoint that somebody removed as a whole before any
//     attempt resumed from it leaves no trace.
//   - A superseded attempt (Options.Fence) commits nothing and removes nothing. An attempt that asked its
//     fence just before it was superseded, or whose fence is stale, can still finish a commit or a record.
//     Such a commit does no harm: the later attempt has recorded what it resumes from (Begin), which
//     supersedes commits of later steps, and no commit replaces another. Once a later attempt has called
//     FindForResume or Begin, the earlier one removes no checkpoint, however old its view of the disk is:
//     each removal is a rename through a folder that these calls take away. A record is refused if a later
//     attempt's record is visible. A record that is written all the same does not supersede the very
//     checkpoint that a still later attempt resumed from.
//   - Only Reject and FindForResume set a checkpoint aside. They do so after it was found damaged twice,
//     and never set a delta aside because its base is damaged. A checkpoint that cannot be read at the
//     moment (an I/O error, a newer format) does not count as damaged.
//   - Only files with this package's own names are ever removed, only those of this run, never
//     those of a newer attempt, and only after a newer commit is durable. Nothing is removed because a
//     single look found it damaged or missing. A zero Policy removes no checkpoint.
//   - A checkpoint for which Pin has returned nil stays, even if another process was about to remove it.
//   - The contents of a file are used only after its lengths have been checked against each other. No
//     allocation is larger than the checked totals imply, and 1 KiB of hostile input costs less than 64 MiB
//     of memory.
//
// # Conventions
//
// All numbers in files are little-endian, tensors are row-major without strides. Equal states
// give equal shard bytes with the same program, whatever the number of goroutines. Errors are
// distinguished with errors.Is: ErrNone, ErrCorrupt (detail in *CorruptError), ErrFormatTooNew,
// ErrFenced, ErrNoSpace, ErrPermission, ErrStale.
//
// # Network file systems
//
// Ranks learn from messages which files exist (Ticket, OpenManifest); no rank polls the file
// system for another's progress. If a client's view lags behind a message, the package waits a bounded
// time for the file to appear. A file that its folder lists exists, even if a lookup does not find it.
// A rename whose reply was lost is recognized by its effect.
//
// # Limits
//
// The base of a delta is a full checkpoint, never another delta. List finds the state of a checkpoint
// without reading data. If two processes of one attempt save the same step at the same time, their
// clocks decide which save is the newer one.
package checkpoint
