// Package lint holds the project's rules that a compiler does not: who may
// import whom, and what a library must not do. Its tests read the source tree,
// and the tables of its documents. Its one function tells scripts/gotest which
// tests are of security.
package lint
