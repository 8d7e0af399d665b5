//go:build !amd64 || noasm

package vec

func assembly() []*set { return nil }
