// Package checkpoint keeps the state of a training run on disk so that a crash, a full disk or a
// flipped bit never costs more than the steps since the last save.
//
// A checkpoint is a folder step-%012d below a run's checkpoints folder. It holds immutable shard
// files with the tensors, one for each rank that had any, and MANIFEST.json, which names every
// shard with its size and checksum. The manifest is written last and is the commit record:
// without it there is no checkpoint. The format is written down byte by byte in docs/format.md.
//
// One process uses Save, Latest and Load. Many ranks write a Draft and read a Checkpoint; package
// checkpoint/distributed does that for them.
//
// # Guarantees
//
//   - When a commit has returned nil, the checkpoint survives a power cut: every file goes through a
//     temporary name in the same folder, is checked for length, synced, closed and renamed, and
//     the folder is synced after it; the shards before the manifest. A file whose sync failed is
//     abandoned, never synced again.
//   - Nothing that is committed is ever overwritten: every save has a folder of its own, also
//     another one of the same step (step-%012d.ATTEMPT-NONCE), which counts from then on. What
//     would not count, since a later attempt has saved or given up the step, is refused. A crash at
//     any moment leaves every checkpoint whole or gone.
//   - Every byte is under a CRC-32C. Find and FindLatest check manifest, sizes, chunk tables and that
//     the tables belong to the manifest, without reading data; Read checks what it reads; Latest,
//     Load and Verify read and check all. The search for the latest falls back past a checkpoint
//     that is corrupt, and says so. It does not say that there is none (ErrNone) where the folder
//     tells of one since the run last began from nothing: by a folder that was set aside, or by
//     the record of an attempt that went on from one. What somebody has removed whole before that is
//     not known.
//   - A superseded attempt (Options.Fence) commits nothing and removes nothing. One that has asked
//     its fence just before it was superseded, or whose fence is stale, can finish a commit or record;
//     but a later attempt has recorded what it goes on from (Begin), so that commit counts for
//     nothing if it is of a later step, and it never takes the place of another. It removes no
//     checkpoint once a later attempt has called FindForResume or Begin, whatever it sees of the
//     disk: each removal is a rename through a folder that those take away. A record is refused where
//     a later attempt's is seen; one that gets by does not give up the very checkpoint that a still
//     later attempt has gone on from.
//   - Only Reject sets a checkpoint aside, after it was found damaged twice, and never a delta for
//     its base's damage. What cannot be read now (an I/O error, a newer format) is not bad.
//   - Only files with this package's own names are ever removed, only those of this run, never
//     those of a newer attempt, and only after a newer commit is durable. Nothing is removed because
//     it seems damaged or missing at one look. A zero Policy removes no checkpoint.
//   - What Pin has reported as pinned stays, whoever was removing it meanwhile.
//   - A file is believed only after its lengths fit each other; no allocation is larger than the
//     checked totals imply, and 1 KiB of hostile input costs less than 64 MiB.
//
// # Conventions
//
// All numbers in files are little-endian, tensors are row-major without strides. Equal states
// give equal shard bytes with the same program, whatever the number of goroutines. Errors are
// told apart with errors.Is: ErrNone, ErrCorrupt (detail in *CorruptError), ErrFormatTooNew,
// ErrFenced, ErrNoSpace, ErrPermission, ErrStale.
//
// # Network file systems
//
// Ranks tell each other by message what is there (Ticket, OpenManifest); no rank polls the file
// system for another's progress. What a message announced is waited for, a bounded time, where a
// client's view lags behind. A file that its folder lists is there, whatever a lookup says. A
// rename whose reply got lost is recognized by its effect.
//
// # Limits
//
// A delta has one base, a full checkpoint; there are no chains. The state of a checkpoint in List is
// found without reading data. Two saves of the same step by one attempt, in two processes at
// once, are ordered by their clocks.
package checkpoint
