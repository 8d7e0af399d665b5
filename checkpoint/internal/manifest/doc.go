// Package manifest holds what a checkpoint says about itself: the manifest, which is the commit
// record; the names of all files and folders; and the records of which attempt resumed from
// which checkpoint. docs/format.md specifies every byte. The package does no input or output.
//
// # Guarantees
//
//   - Parse and ParseRecord check everything that can be checked without the shards, so that later
//     code need not check an index, a length or a sum again. They check the checksum first, then the
//     version, then the rest, so that damage is never reported as a newer format (*Newer), nor a newer
//     format as damage. A required field that is missing or null is an error and never gets a default.
//   - Parse accepts what Encode returns; Encode refuses what could not be read back. Equal values
//     give equal bytes.
//   - The functions that parse names accept exactly the names that the other functions make.
//   - Hostile bytes give an error, never a panic, and no error quotes more than some 80 bytes of
//     them. Their cost is bounded by their length: lists are counted before they are decoded.
//     The worst 60 MiB that we found take 3 s and allocate 20 times as much memory, most of which is
//     free again at once.
//
// # Conventions
//
// Encode writes version 2; Parse reads versions 1 and 2, and a Manifest looks the same for both. All
// offsets and lengths are in bytes. Functions are safe for concurrent use; the caller owns the values
// that they take and return.
//
// # Limits
//
// The constants have the limits. Errors of encoding/json are cut at 240 bytes. Whether a base is itself a full
// checkpoint, and whether shards match the manifest, can be found out only by reading those files.
package manifest
