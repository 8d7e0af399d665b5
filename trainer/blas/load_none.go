//go:build static || !linux || !(amd64 || arm64)

package blas

import "fmt"

func load(string, int, kindFilter) (Library, Info, error) {
	return nil, Info{}, fmt.Errorf("%w: it was built with -tags static, or not for Linux on amd64 or arm64", errCannotLoad)
}
