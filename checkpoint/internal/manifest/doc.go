// Package manifest holds what a checkpoint says about itself: the manifest, which is the commit
// record; the names of all files and folders; and the records of which attempt went on from
// which checkpoint. docs/format.md gives every byte. The package does no input or output.
//
// # Guarantees
//
//   - Parse and ParseRecord check everything that can be checked without the shards, so that no
//     code after them need doubt an index, a length or a sum. Checksum first, then the version,
//     then the rest: damage is never taken for a newer format (*Newer), nor the other way round.
//     No field that is required is made up where it is missing or null.
//   - What Encode gives, Parse takes; what could not be read back is never written. Equal values
//     give equal bytes.
//   - The functions that read names take exactly what those that make names give.
//   - Hostile bytes give an error, never a panic, and no error quotes more than some 80 bytes of
//     them. What they cost is bounded by their length: lists are counted before they are decoded.
//     The worst 60 MiB that we found take 3 s, and allocate 20 times as much, most of it at once
//     free again.
//
// # Conventions
//
// Version 2 is written, versions 1 and 2 are read; a Manifest looks the same for both. All
// offsets and lengths are in bytes. Functions are safe for concurrent use; the values they take
// and return belong to the caller.
//
// # Limits
//
// See the constants. Errors of encoding/json are cut at 240 bytes. Whether a base is itself a full
// checkpoint, and whether shards are what the manifest says, only a reader of those files can tell.
package manifest
