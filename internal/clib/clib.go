package clib

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"
)

var (
	// ErrNotFound means that the loader does not find a library of that name.
	ErrNotFound = errors.New("no such library")
	// ErrUnsupported means that this build of the program cannot load libraries.
	ErrUnsupported = errors.New("this build cannot load libraries: it was built with -tags static, or not for Linux on amd64 or arm64")
)

// Library is a library that has been loaded.
type Library uintptr

// Function is the address of a C function, or 0 if there is none.
type Function uintptr

// maxArguments is how many arguments a function may have.
const maxArguments = 15

// Call is the block in which a call passes its arguments to C. It may be used for one call at a time.
type Call struct {
	fn     Function
	args   [maxArguments]uintptr
	result uintptr
}

// Buffer returns n bytes that Go does not move, which C may read or write while Go has a reference to them.
//
//go:noinline
func Buffer(n int) []byte { return make([]byte, n) } // if it were inlined, the buffer could be on the caller's stack

// New returns a pointer to a value that Go does not move, which C may read or write while Go has a reference to it.
//
//go:noinline
func New[T any]() *T { return new(T) } // not inlined, for the same reason as Buffer

// Text returns s as a C string.
func Text(s string) []byte {
	b := Buffer(len(s) + 1)
	copy(b, s)
	return b
}

// Address returns the address of *p, for a call.
func Address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// String returns the text of the C string at p, or "" for NULL.
func String(p uintptr) string {
	if p == 0 {
		return ""
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&p)) // p is C's memory; a plain conversion would make vet complain
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}

// File returns the path, without symbolic links, of the file that a function comes from, or "" if it is unknown (proc_pid_maps(5)).
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
