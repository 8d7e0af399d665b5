// Package rehearse runs a job twice on this machine, by package simulate: once undisturbed, and once with faults or with a warning in its
// middle (rehearse.go). Both runs must end the same (judge.go): with the same last checkpoint, or the same files.
package rehearse
