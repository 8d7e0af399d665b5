// Package replace puts a whole file under a name, durably: in place of another, whose readers may look at any moment,
// or where nothing is.
//
// # Guarantees
//
//   - When File returns nil, the file is there whole and survives a power cut: a temporary file in the same folder,
//     made with O_EXCL, is written, compared with the length that was written, synced, closed and renamed, and the
//     folder is synced after it.
//   - When it returns an error, the path is as it was before, except where only the last sync of the folder failed:
//     then the new file is there, and may be gone after a power cut.
//   - No temporary file is left behind by a call that returns, unless it cannot be removed.
//
// # Limits
//
// A process that is killed leaves its temporary file, which nothing here looks at again.
package replace
