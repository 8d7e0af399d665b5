// Package lint holds the project's rules that a compiler does not: who may
// import whom, and what a library must not do. Its tests read the source tree,
// and the tables of its documents. Its functions tell scripts/gotest which tests
// are of security, and which files declare a test.
package lint
