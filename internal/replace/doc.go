// Package replace writes a whole file durably, either in place of an existing one, which may be read at any moment, or as a new one.
//
// # Guarantees
//
//   - When File returns nil, the file is complete and survives a power cut: File creates a temporary file in the same directory with
//     O_EXCL, writes it, compares its size with the number of bytes written, syncs it, closes it, renames it, and then syncs the directory.
//   - When File returns an error, the path is as it was before, unless only the last sync of the directory failed. In that case the new
//     file is there, but may be lost in a power cut.
//   - A call that returns leaves no temporary file behind, unless the file cannot be removed.
//
// # Limits
//
// A process that is killed leaves its temporary file, which this package does not remove later.
package replace
