//go:build !static && linux && (amd64 || arm64)

package clib

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// Open loads a library by its path, or by a name that the loader searches for (dlopen(3)). The library stays loaded until Close.
func Open(name string) (Library, error) {
	h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err == nil {
		return Library(h), nil
	}
	if text := err.Error(); strings.HasPrefix(text, name+":") && strings.Contains(text, "No such file") {
		return 0, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return 0, fmt.Errorf("load %s: %w", name, err)
}

// Close unloads a library of which no function has been called.
func (l Library) Close() { _ = purego.Dlclose(uintptr(l)) }

// Symbol returns the function of that name in the library, or 0 if there is none.
func (l Library) Symbol(name string) Function {
	addr, err := purego.Dlsym(uintptr(l), name)
	if err != nil {
		return 0
	}
	return Function(addr)
}

// Self is the program itself with the libraries that it was linked with, such as the C library.
const Self = Library(purego.RTLD_DEFAULT)

// Getenv returns a variable of the environment that C code of this process sees (getenv(3)), or "" if it is not set.
func Getenv(name string) string {
	key := Text(name)
	p := New[Call]().Do(Self.Symbol("getenv"), Address(&key[0]))
	runtime.KeepAlive(key)
	return String(p)
}

// Setenv sets a variable in the environment that C code of this process sees (setenv(3)). If the variable is already set, Setenv changes it
// only if overwrite is true. Go's own environment, which processes started from Go inherit, does not change. During the call C code must
// not read or set variables on any thread.
func Setenv(name, value string, overwrite bool) error {
	addr, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return fmt.Errorf("set %s for C: %w", name, err)
	}
	var set func(name, value string, overwrite int32) int32
	purego.RegisterFunc(&set, addr)
	n := int32(0)
	if overwrite {
		n = 1
	}
	if set(name, value, n) != 0 {
		return fmt.Errorf("set %s for C: out of memory", name)
	}
	return nil
}

// Callback returns a C function that calls f with its first three arguments, integers or pointers, and returns f's result. The function
// exists until the process ends, and there is room for only some hundreds: use one callback many times.
func Callback(f func(a, b, c uintptr) uintptr) Function { return Function(purego.NewCallback(f)) }

// WithoutSignals calls f on a thread that blocks every signal. Threads that a library starts meanwhile inherit that, so that only Go's
// threads, which have a stack for signal handlers, get the signals of the process.
func WithoutSignals(f func() error) error {
	runtime.LockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("block signals while a library is loaded: %w", err)
	}
	defer func() {
		if unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// Do calls a C function whose arguments and result are integers and pointers, and returns its result. It does not allocate. c must be on
// the heap, which Go does not move. What pointers among args point to must be on the heap, too, or in memory that is not Go's; the caller
// keeps it alive until Do returns.
func (c *Call) Do(fn Function, args ...uintptr) uintptr {
	if len(args) > maxArguments {
		panic("clib: a call has at most 15 arguments")
	}
	c.fn = fn
	copy(c.args[:], args)
	cgocall(integers, unsafe.Pointer(c))
	return c.result
}

// integers is the address of the assembly that calls c.fn with c.args. purego.SyscallN does the same, but allocates twice in each call.
var integers uintptr

// cgocall is the runtime's entry into C: it runs fn on a stack that is large enough, with the goroutine counted as
// being in a system call. runtime/cgocall.go promises purego to keep it.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, args unsafe.Pointer) int32
