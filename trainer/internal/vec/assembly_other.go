//go:build !amd64 || noasm

package vec

func assembly() []*kernelSet { return nil }
