//go:build !amd64 && !arm64

package element

func assembly() set { return set{} }
