//go:build !amd64 && !arm64

package element

func assembly() routineSet { return routineSet{} }
