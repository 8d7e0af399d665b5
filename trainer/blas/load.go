package blas

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/cpu"
	"gonum.org/v1/gonum/blas"

	"ddpbatch/internal/clib"
)

// load opens a library by path or by name and prepares it.
func load(name string, threads int, w kindFilter) (lib Library, info Info, err error) {
	err = clib.WithoutSignals(func() error {
		lib, info, err = loadNow(name, threads, w)
		return err
	})
	return lib, info, err
}

func loadNow(name string, threads int, w kindFilter) (Library, Info, error) {
	if err := setEnvironment(threads); err != nil {
		return nil, Info{}, err
	}
	opened, err := clib.Open(name)
	if err != nil {
		return nil, Info{}, err
	}
	handle := handle{opened}
	sgemm, suffix := handle.product("sgemm_")
	kind := handle.kind(suffix)
	if why := refused(sgemm, kind, w); why != "" {
		handle.Close() // no function of it has been called
		return nil, Info{}, fmt.Errorf("%s %s", name, why)
	}
	lib := &foreign{sgemm: sgemm, sbgemm: handle.Symbol("sbgemm_" + suffix)}
	info := Info{Name: filepath.Base(name), Path: cmp.Or(sgemm.File(), name)}
	if kind != nil {
		info.Name = kind.name
		info.Version = kind.version(handle, suffix)
		info.Threads = kind.threads(handle, suffix, threads)
		lib.oneCaller = threads > 1 || kind.serial(handle, suffix)
	}
	if info.Threads != 0 && info.Threads < threads {
		info.Advice = adviceSerial
	} else {
		info.Advice = adviceKernels(info.Version, cpu.X86.HasAVX2, cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL)
	}
	if err := verify(lib); err != nil {
		return nil, Info{}, fmt.Errorf("%s (%s): %w", name, info.Path, err)
	}
	return lib, info, nil
}

// adviceKernels returns the advice for an OpenBLAS that does not know the processor, which is newer than it. It then uses the kernels that
// every processor can run. With SkylakeX in place of Prescott OpenBLAS 0.3.21 trains an MLP 3.1 times as fast on a Xeon of 2024. version is
// the library's own text, such as "OpenBLAS 0.3.21 DYNAMIC_ARCH Prescott".
func adviceKernels(version string, avx2, avx512 bool) string {
	words := strings.Fields(version)
	if !avx2 || !slices.Contains(words, "DYNAMIC_ARCH") || !slices.Contains(words, "Prescott") {
		return ""
	}
	kernels := "Haswell"
	if avx512 {
		kernels = "SkylakeX"
	}
	return fmt.Sprintf("OpenBLAS does not know this processor, and uses kernels for an old one, which take up to 3 times as long: set "+
		"OPENBLAS_CORETYPE=%s (in a job: setup.env), or install a newer OpenBLAS", kernels)
}

// refused returns why a library is not to be used, or "" if it is.
func refused(sgemm clib.Function, k *kind, w kindFilter) string {
	switch {
	case sgemm == 0:
		return "has no sgemm_: it is not a BLAS library"
	case k == nil && w == knownKind:
		return "is not OpenBLAS, BLIS or MKL"
	}
	return ""
}

// setEnvironment sets the number of threads in the environment before a library is loaded. Otherwise OpenBLAS starts a thread for each
// core, and OpenMP applies what is set by a call only to the calling thread, which for a goroutine is any thread.
func setEnvironment(threads int) error {
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"} {
		if err := clib.Setenv(name, strconv.Itoa(threads), true); err != nil {
			return err
		}
	}
	return nil
}

// handle is a loaded library.
type handle struct{ clib.Library }

// product returns the address of a product and the suffix of all names in this build: none, or 64_ in
// some builds with integers of 64 bits. The size of integers does not matter here (see arguments).
func (h handle) product(name string) (addr clib.Function, suffix string) {
	for _, suffix := range []string{"", "64_"} {
		if addr := h.Symbol(name + suffix); addr != 0 {
			return addr, suffix
		}
	}
	return 0, ""
}

// kind is a family of libraries, with the names of functions that only it has.
type kind struct {
	name     string
	config   string // char *config(void), or void config(char *, int) if filled is set
	filled   bool
	set, get string // threads: void set(int), int get(void)
	parallel string // int parallel(void): 0 if it was built for one thread
}

var kinds = []kind{
	{name: "OpenBLAS", config: "openblas_get_config", set: "openblas_set_num_threads", get: "openblas_get_num_threads",
		parallel: "openblas_get_parallel"},
	{name: "BLIS", config: "bli_info_get_version_str", set: "bli_thread_set_num_threads", get: "bli_thread_get_num_threads",
		parallel: "bli_info_get_enable_threading"},
	{name: "MKL", config: "MKL_Get_Version_String", filled: true, set: "MKL_Set_Num_Threads", get: "MKL_Get_Max_Threads"},
}

// kind returns the family of the library, or nil if it is none of kinds.
func (h handle) kind(suffix string) *kind {
	for i := range kinds {
		if h.Symbol(kinds[i].config+suffix) != 0 {
			return &kinds[i]
		}
	}
	return nil
}

func (k *kind) version(h handle, suffix string) string {
	config := h.Symbol(k.config + suffix)
	call := new(clib.Call)
	if k.filled {
		text := clib.Buffer(256)
		call.Do(config, uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(len(text)))
		text, _, _ = bytes.Cut(text, []byte{0})
		return string(bytes.TrimSpace(text))
	}
	return clib.String(call.Do(config))
}

// threads sets the number of threads, and returns what the library then reports, or 0 if it reports nothing.
func (k *kind) threads(h handle, suffix string, n int) int {
	set, get := h.Symbol(k.set+suffix), h.Symbol(k.get+suffix)
	if set == 0 || get == 0 {
		return 0
	}
	if k.serial(h, suffix) {
		return 1
	}
	new(clib.Call).Do(set, uintptr(n)) // an int in OpenBLAS and MKL, 64 bits in BLIS: the same register
	return max(int(number(get)), 0)
}

// serial reports whether the library was built for one thread.
func (k *kind) serial(h handle, suffix string) bool {
	parallel := h.Symbol(k.parallel + suffix)
	return parallel != 0 && number(parallel) == 0
}

// number calls int f(void).
func number(f clib.Function) int32 { return int32(new(clib.Call).Do(f)) }

// foreign is a library with the Fortran interface, in which matrices are stored by columns. Ours, stored by rows, are their transposes
// there, so the product to request is c' = op(b)' op(a)'.
//
// Some libraries allow one caller at a time. Those built for one thread may lack locks: OpenBLAS has them then only if its builder
// asked for them, which is not visible here. And if a product has several threads, OpenMP keeps as many for each of our threads
// that calls, and they take the cores from each other: 2 to 4 GFLOP/s instead of 130 were measured with eight callers on two cores.
type foreign struct {
	sgemm     clib.Function
	sbgemm    clib.Function // 0 if the library has none
	oneCaller bool          // only one caller at a time

	calling sync.Mutex // held during calls if oneCaller
	args    pool[arguments]
}

// Sgemm implements Library.
func (f *foreign) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int) {
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		scale(c, ldc, m, n, beta)
		return
	}
	reads(tA, m, k, a, lda)
	reads(tB, k, n, b, ldb)
	writes(m, n, c, ldc)
	args := f.args.take()
	args.fn, args.a, args.b, args.c = f.sgemm, unsafe.Pointer(&b[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&c[0])
	args.shape(tA, tB, m, n, k, alpha, lda, ldb, beta, ldc)
	f.call(args)
}

// bfloat16 is Sgemm of bfloat16 matrices into one of float32, by sbgemm_, which the library must have. No dimension may be 0.
func (f *foreign) bfloat16(tA, tB blas.Transpose, m, n, k int, alpha float32, a []uint16, lda int, b []uint16, ldb int, beta float32,
	c []float32, ldc int) {
	check(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	writes(m, n, c, ldc)
	args := f.args.take()
	args.fn, args.a, args.b, args.c = f.sbgemm, unsafe.Pointer(&b[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&c[0])
	args.shape(tA, tB, m, n, k, alpha, lda, ldb, beta, ldc)
	f.call(args)
}

func (f *foreign) hasBFloat16() bool { return f.sbgemm != 0 }

// call makes the call, and puts args back.
func (f *foreign) call(args *arguments) {
	if f.oneCaller {
		f.calling.Lock()
		defer f.calling.Unlock()
	}
	args.call.Do(args.fn, clib.Address(&args.tA), clib.Address(&args.tB), clib.Address(&args.m), clib.Address(&args.n),
		clib.Address(&args.k), clib.Address(&args.alpha),
		uintptr(args.a), clib.Address(&args.lda), uintptr(args.b), clib.Address(&args.ldb), clib.Address(&args.beta), uintptr(args.c),
		clib.Address(&args.ldc),
		1, 1) // the lengths of tA and tB as strings, which Fortran compilers add
	runtime.KeepAlive(args)
	*args = arguments{}
	f.args.put(args)
}

// arguments are the arguments of a Fortran product, which takes all by reference. They are on the heap, which Go does not move, and so is
// what a, b and c point to: storing them here moves it there, and keeps it alive during the call.
//
// Integers have 64 bits, and are small and positive: a library that expects pointers to integers of 32 bits (LP64) reads
// the low halves, which come first on the supported machines, and one with 64 bits (ILP64) reads all.
type arguments struct {
	call                   clib.Call
	fn                     clib.Function // the product
	a, b, c                unsafe.Pointer
	m, n, k, lda, ldb, ldc int64
	alpha, beta            float32
	tA, tB                 byte
}

// shape sets everything but the addresses, for the transposed product.
func (args *arguments) shape(tA, tB blas.Transpose, m, n, k int, alpha float32, lda, ldb int, beta float32, ldc int) {
	args.tA, args.tB = letter(tB), letter(tA)
	args.m, args.n, args.k = int64(n), int64(m), int64(k)
	args.lda, args.ldb, args.ldc = int64(ldb), int64(lda), int64(ldc)
	args.alpha, args.beta = alpha, beta
}

func letter(t blas.Transpose) byte {
	if t == blas.NoTrans {
		return 'N'
	}
	return 'T'
}
