//go:build !amd64 || noasm

package tile

func assembly() []kernel { return nil }
