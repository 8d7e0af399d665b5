//go:build !amd64 || noasm

package chunk

func choose() kernels { return portable }
