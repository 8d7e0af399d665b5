// Package replace puts a whole file in place of another, durably: what an export needs, whose reader may look at any moment.
//
// # Guarantees
//
//   - When File returns nil, the file is there whole and survives a power cut: a temporary file in the same folder, made with O_EXCL,
//     is written, compared with the length that was written, synced, closed and renamed, and the folder is synced after it.
//   - When it returns an error, the path is as it was before, except where only the last sync of the folder failed: then the new file is
//     there, and may be gone after a power cut.
//   - No temporary file is left behind by a call that returns.
//
// # Limits
//
// A process that is killed leaves its temporary file, .ddpbatch-XXXXXXXX.tmp, which nothing looks at again.
package replace
