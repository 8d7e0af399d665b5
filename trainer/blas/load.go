//go:build !static && linux && (amd64 || arm64)

package blas

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// load opens a library by path or by name and makes it ready.
func load(name string, threads int, w want) (Library, Info, error) {
	restore, err := blockSignals()
	if err != nil {
		return nil, Info{}, err
	}
	defer restore()
	handle, err := open(name, threads)
	if err != nil {
		return nil, Info{}, err
	}
	sgemm, suffix := handle.product("sgemm_")
	kind := handle.kind(suffix)
	if why := refused(sgemm, kind, w); why != "" {
		_ = purego.Dlclose(uintptr(handle)) // nothing in it has been called
		return nil, Info{}, fmt.Errorf("%s %s", name, why)
	}
	lib := &foreign{sgemm: sgemm, sbgemm: handle.symbol("sbgemm_" + suffix)}
	info := Info{Name: filepath.Base(name), Path: mapped(sgemm, name)}
	if kind != nil {
		info.Name = kind.name
		info.Version = kind.version(handle, suffix)
		info.Threads = kind.threads(handle, suffix, threads)
		lib.alone = threads > 1 || kind.serial(handle, suffix)
	}
	if info.Threads != 0 && info.Threads < threads {
		info.Advice = adviceSerial
	}
	if err := verify(lib); err != nil {
		return nil, Info{}, fmt.Errorf("%s (%s): %w", name, info.Path, err)
	}
	return lib, info, nil
}

// refused says why a library is not to be used, nothing where it is.
func refused(sgemm uintptr, k *kind, w want) string {
	switch {
	case sgemm == 0:
		return "has no sgemm_: it is no BLAS library"
	case k == nil && w == knownKind:
		return "is none of OpenBLAS, BLIS and MKL"
	}
	return ""
}

// blockSignals stays on the calling thread and blocks every signal there until restore is called. What threads the library starts
// meanwhile inherit that: the signals of the process are for Go's threads, which have a stack to handle them on.
func blockSignals() (restore func(), err error) {
	runtime.LockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("block signals while a library is loaded: %w", err)
	}
	return func() {
		if unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

// open calls dlopen, and dlerror on the same thread.
func open(name string, threads int) (handle, error) {
	setEnvironment(threads)
	h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err == nil {
		return handle(h), nil
	}
	if text := err.Error(); strings.HasPrefix(text, name+":") && strings.Contains(text, "No such file") {
		return 0, fmt.Errorf("%s: %w", name, errNotFound)
	}
	return 0, fmt.Errorf("load %s: %w", name, err)
}

// setEnvironment tells libraries their number of threads before they are loaded. OpenBLAS starts a thread for each core
// otherwise, and OpenMP applies what is set by a call to the calling thread only, which for a goroutine is any.
func setEnvironment(threads int) {
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return // the library is told again once it is loaded
	}
	var set func(name, value string, overwrite int32) int32
	purego.RegisterFunc(&set, setenv)
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"} {
		set(name, strconv.Itoa(threads), 1)
	}
}

// mapped returns the file that code at addr comes from, or name where that cannot be told.
func mapped(addr uintptr, name string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(maps)) {
		var low, high uintptr
		if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err != nil || addr < low || addr >= high {
			continue
		}
		if at := strings.IndexByte(line, '/'); at >= 0 {
			return strings.TrimSpace(line[at:])
		}
	}
	return name
}
