// Package snapshot copies a user's code into a run directory, so that a run always uses the code as it was at submit, even if the original
// tree changes later.
//
// A [Request] describes the copy ([code] of job.toml, config.go). [Request.Select] decides which files belong to the copy, within limits,
// without reading any of them (tree.go): the files that git tracks (tracked.go, with calls in git.go), or all files below a directory
// (walk.go); patterns add and remove files (pattern.go). [Selection.Write] makes the copy durably (write.go), with a record that describes
// it (record.go) and the diff against the commit, in which secrets are blanked (diff.go). [Selection.LiveImports] finds what in a Python
// environment leads back to the tree (imports.go).
package snapshot
