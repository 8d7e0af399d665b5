package blas

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"gonum.org/v1/gonum/blas"

	"ddpbatch/internal/clib"
)

// candidates are the names that Auto tries, in this order. libopenblas.so.0 is the name in Debian, conda and Spack, and in EPEL the
// build without threads; builds with threads have a letter there, p for POSIX threads, o for OpenMP. libblas.so.3 is the alternative
// that an administrator has chosen; it is used if it is one of the other libraries, and not if it is the slow reference.
var candidates = []string{
	"libopenblasp.so.0", "libopenblas.so.0", "libopenblaso.so.0", "libopenblas.so",
	"libmkl_rt.so.2", "libmkl_rt.so.1",
	"libblis.so.4", "libblis.so.3", "libblis-mt.so.4",
	"libblas.so.3",
}

// advice is Info.Advice with Go, and adviceSerial with a library that has fewer threads than requested.
const (
	advice = `products in Go take 3 to 8 times as long as OpenBLAS's: install OpenBLAS (libopenblas0 in Debian, openblas in EPEL, ` +
		`conda and Spack), or set blas = "PATH" to the library`
	adviceSerial = "this library was built for fewer threads than were asked for: install its build for POSIX threads " +
		"(libopenblas0-pthread in Debian, openblas-threads in EPEL)"
)

// kindFilter says which libraries load accepts.
type kindFilter int

const (
	anyKind   kindFilter = iota // every library with sgemm_, however slow
	knownKind                   // those that are known to be fast
)

// Open loads the library that cfg names, sets its number of threads, and compares a few small products with the definition. With Auto
// it always succeeds; Info.PassedOver says which libraries it has rejected.
//
// A loaded library stays loaded. While it loads, and from then on, variables such as OMP_NUM_THREADS are set to cfg.Threads in the
// environment that C code of this process sees; the environment of Go, which processes started from Go inherit, does not change.
// So call Open at the start of a program, before other goroutines may be in C code.
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
		case errors.Is(err, clib.ErrUnsupported):
			info.Advice = err.Error()
			return new(Go), info
		case !errors.Is(err, clib.ErrNotFound):
			info.PassedOver = append(info.PassedOver, err.Error())
		}
	}
	return new(Go), info
}

// names returns the candidates in each of dirs, then those for the loader's own search.
func names(dirs []string) []string {
	var all []string
	for _, dir := range dirs {
		for _, name := range candidates {
			all = append(all, filepath.Join(dir, name))
		}
	}
	return append(all, candidates...)
}

// Auto and InGo are the values of Config.Library that do not name a file.
const (
	Auto = "auto" // the first library of the site that works, or this program's own products if there is none
	InGo = "go"   // this program's own products

	formerInGo = "gonum" // the name of InGo while its products were gonum's; job files may still contain it
)

// Config selects the library to open.
type Config struct {
	// Library is Auto, InGo, or what the loader should load: a path, or a name such as libopenblas.so.0.
	Library string
	// Threads is the number of cores that one product uses; below 1 means 1.
	Threads int
	// Dirs are folders in which Auto looks before it asks the system's loader, which uses LD_LIBRARY_PATH and
	// ld.so.cache: for example that of a conda environment ($CONDA_PREFIX/lib).
	Dirs []string
}

// Info describes what was opened, for people.
type Info struct {
	// Name is OpenBLAS, BLIS, MKL or go, or the name of the file if a library is of another kind.
	Name string
	// Version is the library's own text on version and configuration; empty if it has none.
	Version string
	// Path is the file, with links resolved; empty for go.
	Path string
	// Threads is the number of cores that a product uses, as the library reports; 0 if it does not report it.
	Threads int
	// Advice says how to get faster products; empty if there is nothing to advise.
	Advice string
	// PassedOver has a line for every library that Auto has found and rejected, with the reason.
	PassedOver []string
}

// String returns one line: name, version, file and threads.
func (i Info) String() string {
	text := i.Name
	if i.Version != "" {
		text += " (" + i.Version + ")"
	}
	if i.Path != "" {
		text += " from " + i.Path
	}
	switch i.Threads {
	case 0:
		return text + ", unknown number of threads"
	case 1:
		return text + ", 1 thread"
	}
	return text + ", " + strconv.Itoa(i.Threads) + " threads"
}

// errWrong reports a library with wrong products, because it expects other arguments or was built for another machine.
var errWrong = errors.New("its sgemm_ does not compute a matrix product: it has another interface than BLAS's, or " +
	"is broken on this machine")

// verify compares products with the definition. Their elements are small integers, so that the results are exact in any order
// of summation, and in bfloat16, too.
func verify(lib Library) error {
	const m, n, k, gap = 19, 37, 23, 3
	for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
		for _, tB := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, beta := range []float32{0, 2} {
				if !correct(lib, tA, tB, m, n, k, gap, beta) {
					return errWrong
				}
			}
		}
	}
	return nil
}

// correct computes one product, of matrices with gaps of gap elements between rows, and checks every element of c and of the gaps.
func correct(lib Library, tA, tB blas.Transpose, m, n, k, gap int, beta float32) bool {
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	lda, ldb, ldc := colsA+gap, colsB+gap, n+gap
	a, b, c := integers(rowsA*lda, 3), integers(rowsB*ldb, 5), integers(m*ldc, 7)
	if beta == 0 { // then the contents must be ignored
		for i := range c {
			if i%ldc < n {
				c[i] = float32(math.NaN())
			}
		}
	}
	const alpha = 2
	want := append([]float32(nil), c...)
	for i := range m {
		for j := range n {
			var sum float32
			for l := range k {
				sum += from(a, lda, tA, i, l)[0] * from(b, ldb, tB, l, j)[0]
			}
			if beta != 0 {
				want[i*ldc+j] *= beta
			} else {
				want[i*ldc+j] = 0
			}
			want[i*ldc+j] += alpha * sum
		}
	}
	lib.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	for i := range c {
		if c[i] != want[i] {
			return false
		}
	}
	return true
}

// integers returns values from -8 to 8 without a short period.
func integers(length int, seed uint32) []float32 {
	x := make([]float32, length)
	for i := range x {
		seed = seed*1664525 + 1013904223 // Numerical Recipes' generator
		x[i] = float32(seed>>16%17) - 8
	}
	return x
}
