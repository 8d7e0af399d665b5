package blas

import (
	"errors"
	"fmt"
	"path/filepath"
)

// candidates are what Auto tries, in this order. libopenblas.so.0 is Debian's, conda's and Spack's name, and in EPEL that of the
// build without threads; those with have a letter there, p for POSIX threads, o for OpenMP. libblas.so.3 is the alternative
// that an administrator chose; it counts where one of the others stands behind it, and not where the slow reference does.
var candidates = []string{
	"libopenblasp.so.0", "libopenblas.so.0", "libopenblaso.so.0", "libopenblas.so",
	"libmkl_rt.so.2", "libmkl_rt.so.1",
	"libblis.so.4", "libblis.so.3", "libblis-mt.so.4",
	"libblas.so.3",
}

// advice is Info.Advice with Go, and adviceSerial with a library that has fewer threads than were asked for.
const (
	advice       = `products in Go take 3 to 8 times as long as OpenBLAS's: install OpenBLAS (libopenblas0 in Debian, openblas in EPEL, conda and Spack), or set blas = "PATH" to the library`
	adviceSerial = "this library was built for fewer threads than were asked for: install its build for POSIX threads (libopenblas0-pthread in Debian, openblas-threads in EPEL)"
)

var (
	errNotFound   = errors.New("no such library")               // for a name that the loader does not find
	errCannotLoad = errors.New("this build loads no libraries") // built with -tags static, or for another platform
)

// want is what load takes.
type want int

const (
	anyKind   want = iota // every library with sgemm_, however slow
	knownKind             // those known to be fast
)

// Open loads the library that cfg names, sets its number of threads, and compares a few small products with the definition. With Auto
// it always succeeds; Info.PassedOver says which libraries it did not take.
//
// What is loaded stays loaded. While it loads, and from then on, variables such as OMP_NUM_THREADS are set to cfg.Threads in the
// environment that C code of this process sees; the one of Go, which processes started from Go inherit, stays as it is.
// So Open belongs to the start of a program, before other goroutines may be inside of C code.
func Open(cfg Config) (Library, Info, error) {
	cfg.Threads = max(cfg.Threads, 1)
	switch cfg.Library {
	case InGo, formerInGo:
		return new(Go), Info{Name: InGo, Threads: 1, Advice: advice}, nil
	case Auto:
		lib, info := choose(cfg)
		return lib, info, nil
	case "":
		return nil, Info{}, errors.New(`blas: no library named: write "auto", "go" or a path`)
	}
	lib, info, err := load(cfg.Library, cfg.Threads, anyKind)
	if err != nil {
		return nil, Info{}, fmt.Errorf(`blas: %w; name another file, or set blas = "auto" or "go"`, err)
	}
	return lib, info, nil
}

// choose returns the first candidate that works.
func choose(cfg Config) (Library, Info) {
	info := Info{Name: InGo, Threads: 1, Advice: advice}
	for _, name := range names(cfg.Dirs) {
		lib, found, err := load(name, cfg.Threads, knownKind)
		switch {
		case err == nil:
			found.PassedOver = info.PassedOver
			return lib, found
		case errors.Is(err, errCannotLoad):
			info.Advice = err.Error()
			return new(Go), info
		case !errors.Is(err, errNotFound):
			info.PassedOver = append(info.PassedOver, err.Error())
		}
	}
	return new(Go), info
}

// names are the candidates in each of dirs, then by the loader's own search.
func names(dirs []string) []string {
	var all []string
	for _, dir := range dirs {
		for _, name := range candidates {
			all = append(all, filepath.Join(dir, name))
		}
	}
	return append(all, candidates...)
}
