// Package rehearse has a job run twice on this machine, by package simulate: as it is, and with faults, or with a warning in its middle
// (rehearse.go). Both must end alike (judge.go): with the same last checkpoint, or the same files.
package rehearse
