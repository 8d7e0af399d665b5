package clib

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"
)

var (
	// ErrNotFound: the loader finds no library of that name.
	ErrNotFound = errors.New("no such library")
	// ErrUnsupported: this build of the program loads no libraries.
	ErrUnsupported = errors.New("this build loads no libraries: it was built with -tags static, or not for Linux on amd64 or arm64")
)

// Library is a library that has been loaded.
type Library uintptr

// Function is the address of a C function, 0 where there is none.
type Function uintptr

// maxArguments is how many arguments a function can have.
const maxArguments = 15

// Call is the block in which a call hands its arguments to C. It is for one call at a time.
type Call struct {
	fn     Function
	args   [maxArguments]uintptr
	result uintptr
}

// Buffer is memory of n bytes that Go does not move, for C to read or write while it is referred to from Go.
//
//go:noinline
func Buffer(n int) []byte { return make([]byte, n) } // a caller that it is inlined in could have it on its stack

// New is a value that Go does not move, for C to read or write while it is referred to from Go.
//
//go:noinline
func New[T any]() *T { return new(T) } // as Buffer

// Text is a C string.
func Text(s string) []byte {
	b := Buffer(len(s) + 1)
	copy(b, s)
	return b
}

// Address is that of what p points to, for a call.
func Address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// String is the text of a C string, none for NULL.
func String(p uintptr) string {
	if p == 0 {
		return ""
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&p)) // memory of C, which vet takes for Go's
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}

// File is the file that a function comes from, without links; empty where that cannot be told (proc_pid_maps(5)).
func (f Function) File() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(maps)) {
		var low, high Function
		if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err != nil || f < low || f >= high {
			continue
		}
		if at := strings.IndexByte(line, '/'); at >= 0 {
			return strings.TrimSpace(line[at:])
		}
	}
	return ""
}
