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

// Open loads a library by its path, or by a name that the loader looks for (dlopen(3)). It stays loaded.
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

// Close unloads a library in which nothing has been called.
func (l Library) Close() { _ = purego.Dlclose(uintptr(l)) }

// Symbol returns a function of the library, 0 where it has none of that name.
func (l Library) Symbol(name string) Function {
	addr, err := purego.Dlsym(uintptr(l), name)
	if err != nil {
		return 0
	}
	return Function(addr)
}

// Self is the program itself with what it was linked with: the C library.
const Self = Library(purego.RTLD_DEFAULT)

// Getenv is a variable of the environment that C code of this process sees (getenv(3)), empty where there is none.
func Getenv(name string) string {
	key := Text(name)
	p := New[Call]().Do(Self.Symbol("getenv"), Address(&key[0]))
	runtime.KeepAlive(key)
	return String(p)
}

// Setenv sets a variable in the environment that C code of this process sees (setenv(3)), also where it is there already if overwrite. Go's
// own, which processes started from Go inherit, stays as it is. No C code may read or set a variable meanwhile, on whatever thread.
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
		return fmt.Errorf("set %s for C: there is no memory", name)
	}
	return nil
}

// Callback is a function for C, whose first three arguments and result, integers and pointers, are those of f. It is there until the
// process ends, and there is room for some hundreds: one is for many uses.
func Callback(f func(a, b, c uintptr) uintptr) Function { return Function(purego.NewCallback(f)) }

// WithoutSignals calls f on a thread that blocks every signal. What threads a library starts meanwhile inherit that: the signals of the
// process are for Go's threads, which have a stack to handle them on.
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

// Do calls a C function whose arguments and result are integers and pointers, and returns its result. It allocates nothing. c is on the
// heap, which Go does not move, and so is what pointers among args point to, or in memory that is not Go's; the caller keeps it alive until
// Do returns.
func (c *Call) Do(fn Function, args ...uintptr) uintptr {
	if len(args) > maxArguments {
		panic("clib: a call has at most 15 arguments")
	}
	c.fn = fn
	copy(c.args[:], args)
	cgocall(integers, unsafe.Pointer(c))
	return c.result
}

// integers is the address of the assembly that calls c.fn with c.args. purego.SyscallN does the same, and allocates twice in each call.
var integers uintptr

// cgocall is the runtime's way into C: on a stack that is large enough, with the goroutine counted as
// being in a system call. runtime/cgocall.go promises purego to keep it.
//
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, args unsafe.Pointer) int32
