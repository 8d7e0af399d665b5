// Package testenv finds what tests read outside the repository, and skips
// them, with the reason, where it is absent.
package testenv
