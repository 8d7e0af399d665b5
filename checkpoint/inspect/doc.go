// Package inspect shows checkpoints to people: it finds them by the names that people use, describes, verifies and compares them,
// and exports and imports weights.
//
// A [Finder] finds a [Folder] of checkpoints by a job id, a run directory or a path, and otherwise explains why it found none.
// [Describe] and [Verify] examine checkpoints, [Compare] compares the [Contents] of two checkpoints or safetensors files,
// an [Export] writes tensors to files, and Finder.Import makes a checkpoint from a file.
package inspect
