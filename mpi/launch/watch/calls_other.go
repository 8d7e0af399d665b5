//go:build !amd64

package watch

var olderCalls map[int]string
