// Package snapshot copies a user's code into a run directory, so that a run goes on with the code as it was at submit, whatever becomes of
// the tree that it was copied from.
//
// A [Request] says what is wanted ([code] of job.toml, config.go). [Request.Select] looks at the tree and decides which files belong to the
// copy, within limits, and reads none of them (tree.go): tracked files, as git lists them (tracked.go, by the calls in git.go), or all
// below a folder (walk.go); patterns add and take away (pattern.go). [Selection.Write] makes the copy, durably (write.go), with a record of
// what it is (record.go) and the diff against the commit, without what looks like a secret (diff.go). [Selection.LiveImports] finds what in
// a Python environment leads back to the tree (imports.go).
package snapshot
