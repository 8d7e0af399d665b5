// Package inspect looks into checkpoints for a person: it finds them by what people call them, describes, verifies and compares them,
// and takes weights out of them and into them.
//
// A [Finder] finds a [Folder] of checkpoints by a job id, a run directory or a path, and says what is wrong where there is none.
// [Describe] and [Verify] tell of checkpoints, [Compare] holds the [Contents] of two of them, or of safetensors files, against each
// other, an [Export] writes tensors to files, and Finder.Import makes a checkpoint of a file.
package inspect
