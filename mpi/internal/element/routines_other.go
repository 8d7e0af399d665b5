//go:build !amd64 && !arm64

package element

// assembly is none.
func assembly() routineSet { return routineSet{} }
