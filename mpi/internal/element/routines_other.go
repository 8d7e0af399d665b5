//go:build !amd64 && !arm64

package element

// assembly returns no routines.
func assembly() routineSet { return routineSet{} }
