// Package lint holds the project's rules that the compiler does not check: which packages may import which, and what a library must not do.
// Its tests read the source tree and the tables in the documentation. Its functions give scripts/gotest the names of the security tests and
// the files that declare each test.
package lint
