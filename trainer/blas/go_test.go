package blas

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"pgregory.net/rapid"

	"ddpbatch/internal/clib"
)

// product holds the arguments of one Sgemm call. Its matrices may have gaps between their rows.
type product struct {
	tA, tB        blas.Transpose
	m, n, k       int
	alpha, beta   float32
	a, b, c       []float32
	lda, ldb, ldc int
}

// newProduct draws values in [-1, 1). If beta is 0, c is full of NaN.
func newProduct(tA, tB blas.Transpose, m, n, k, gap int, alpha, beta float32) product {
	rowsA, colsA := stored(tA, m, k)
	rowsB, colsB := stored(tB, k, n)
	p := product{tA: tA, tB: tB, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: colsA + gap, ldb: colsB + gap, ldc: n + gap}
	p.a, p.b, p.c = values(rowsA*p.lda, 1), values(rowsB*p.ldb, 2), values(m*p.ldc, 3)
	if beta == 0 {
		for i := range p.c {
			p.c[i] = float32(math.NaN())
		}
	}
	return p
}

func values(length int, seed uint32) []float32 {
	x := make([]float32, length)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(int32(seed)) / (1 << 31)
	}
	return x
}

func (p product) run(lib Library) {
	lib.Sgemm(p.tA, p.tB, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc)
}

// reference returns what each element of c must be, by gonum's product in float64, and how far a library's element may be from it. The
// bound is twice that of k+3 roundings of float32 in any order, each with a relative error of 2^-24 (Higham, Accuracy and Stability of
// Numerical Algorithms, section 3.1). It is relative to the product of all magnitudes. The results in gaps have no meaning.
func (p product) reference() (want, bound []float64) {
	want, bound = p.inFloat64(func(x float64) float64 { return x }), p.inFloat64(math.Abs)
	for i := range bound {
		bound[i] *= 2 * float64(p.k+3) / (1 << 24)
	}
	return want, bound
}

// inFloat64 returns the product in float64, with f applied to alpha, beta and all elements.
func (p product) inFloat64(f func(float64) float64) []float64 {
	converted := func(x []float32) []float64 {
		y := make([]float64, len(x), len(x)+max(p.m, p.n, p.k)) // gonum wants memory for an element even in an empty row
		for i, v := range x {
			y[i] = f(float64(v))
		}
		return y
	}
	a, b, c := converted(p.a), converted(p.b), converted(p.c)
	gonum.Implementation{}.Dgemm(p.tA, p.tB, p.m, p.n, p.k, f(float64(p.alpha)), a[:cap(a)], max(1, p.lda), b[:cap(b)], max(1, p.ldb),
		f(float64(p.beta)), c, max(1, p.ldc))
	return c
}

type reporter interface{ Errorf(string, ...any) }

// check computes p in a copy of c and compares it with its reference.
func (p product) check(t reporter, lib Library) {
	want, bound := p.reference()
	p.compare(t, lib, want, bound)
}

func (p product) compare(t reporter, lib Library, want, bound []float64) {
	before := p.c
	p.c = slices.Clone(p.c)
	p.run(lib)
	shape := fmt.Sprint(p.m, p.n, p.k, string(p.tA), string(p.tB), p.alpha, p.beta, p.lda, p.ldb, p.ldc)
	for i, got := range p.c {
		row, col := i/p.ldc, i%p.ldc
		switch {
		case col >= p.n && !sameBits(got, before[i]):
			t.Errorf("%s: the gap behind row %d was changed", shape, row)
			return
		case col < p.n && !(math.Abs(float64(got)-want[i]) <= bound[i]):
			t.Errorf("%s: element %d, %d is %v, want %v within %v", shape, row, col, got, want[i], bound[i])
			return
		}
	}
}

// vectors returns the rows of op(x).
func vectors(x []float32, ld int, t blas.Transpose, rows, cols int) [][]float64 {
	all := make([][]float64, rows)
	for i := range all {
		all[i] = make([]float64, cols)
		for j := range all[i] {
			all[i][j] = float64(from(x, ld, t, i, j)[0])
		}
	}
	return all
}

func flip(t blas.Transpose) blas.Transpose {
	if t == blas.NoTrans {
		return blas.Trans
	}
	return blas.NoTrans
}

var transposes = []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}

func TestLibrariesGiveTheDefinition(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			dim := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 80))
			newProduct(rapid.SampledFrom(transposes).Draw(t, "tA"), rapid.SampledFrom(transposes).Draw(t, "tB"),
				dim.Draw(t, "m"), dim.Draw(t, "n"), dim.Draw(t, "k"), rapid.IntRange(0, 9).Draw(t, "gap"),
				rapid.SampledFrom([]float32{1, 0, -0.5, 3}).Draw(t, "alpha"),
				rapid.SampledFrom([]float32{0, 1, -2}).Draw(t, "beta")).check(t, lib)
		}))
	}
}

// TestLibrariesGiveLargeProductsRight multiplies matrices with sizes on both sides of those at which libraries, and the blocks of Go, cut.
func TestLibrariesGiveLargeProductsRight(t *testing.T) {
	all := libraries(t)
	for _, p := range []product{
		newProduct(blas.NoTrans, blas.NoTrans, 65, 193, 1025, 1, 1, 1),
		newProduct(blas.Trans, blas.Trans, 70, 200, 130, 1, 1, 0),
		newProduct(blas.NoTrans, blas.Trans, 1, 70, 2049, 1, 1, 1),
		newProduct(blas.Trans, blas.NoTrans, 70, 1, 1025, 1, 1, -1),
	} {
		want, bound := p.reference()
		for name, lib := range all {
			t.Run(name, func(t *testing.T) { p.compare(t, lib, want, bound) })
		}
	}
}

// tooLarge is a variable since a constant would not compile if int had 32 bits.
var tooLarge int64 = 1 << 31

func TestSgemmPanicsOnBadArguments(t *testing.T) {
	x := make([]float32, 12)
	const n, tr = blas.NoTrans, blas.Trans
	for name, lib := range libraries(t) {
		for want, call := range map[string]func(){
			"blas: unknown transpose":          func() { lib.Sgemm('X', n, 3, 4, 2, 1, x, 2, x, 4, 0, x, 4) },
			"blas: negative dimension":         func() { lib.Sgemm(n, n, 3, -4, 2, 1, x, 2, x, 4, 0, x, 4) },
			"blas: a does not hold its matrix": func() { lib.Sgemm(n, n, 3, 4, 2, 1, x[:5], 2, x, 4, 0, x, 4) },
			"blas: b does not hold its matrix": func() { lib.Sgemm(n, tr, 3, 4, 2, 1, x, 2, x, 1, 0, x, 4) },
			"blas: c does not hold its matrix": func() { lib.Sgemm(n, n, 3, 4, 2, 1, x, 2, x, 4, 0, x[:11], 4) },
			"blas: dimension above 2^31-1":     func() { lib.Sgemm(n, n, 1, 1, 1, 1, x, int(tooLarge), x, 1, 0, x, 1) },
		} {
			func() {
				defer func() {
					if got := recover(); got != want {
						t.Errorf("%s panicked with %v, want %q", name, got, want)
					}
				}()
				call()
			}()
		}
	}
}

func sameBits(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }

// libraries returns the libraries to test: Go, the one that Auto finds, and the other builds that Debian installs side by side.
func libraries(t testing.TB) map[string]Library {
	t.Helper()
	all := map[string]Library{InGo: new(Go)}
	for _, spec := range append(installed(t), Auto) {
		lib, info, err := Open(Config{Library: spec, Threads: 1})
		if err != nil {
			t.Logf("without %s: %v", spec, err)
			continue
		}
		t.Logf("%s: %v", spec, info)
		all[spec] = lib
	}
	return all
}

// installed returns the files of Debian's packages libopenblas0-*, libblis4-* and libblas3.
func installed(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"openblas-*/libopenblas.so.0", "blis-*/libblis.so.4", "blas/libblas.so.3"} {
		files, err := filepath.Glob(filepath.Join("/usr/lib/*-linux-gnu*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// foreignLibrary opens the library that Auto finds, and skips the test if that is Go.
func foreignLibrary(t testing.TB, threads int) (Library, Info) {
	t.Helper()
	lib, info, err := Open(Config{Library: Auto, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	if info.Name == InGo {
		t.Skipf("no BLAS library here: %s", info.Advice)
	}
	return lib, info
}

// fake compiles testdata/fake.c to a file of the given name in a new folder. It skips the test if there is no compiler or if libraries
// cannot be loaded.
func fake(t *testing.T, name string, defines ...string) string {
	t.Helper()
	if _, _, err := load("libc.so.6", 1, anyKind); err != nil && errors.Is(err, clib.ErrUnsupported) {
		t.Skip(err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to build a library with")
	}
	file := filepath.Join(t.TempDir(), name)
	args := append([]string{"-shared", "-fPIC", "-O1", "-o", file, "testdata/fake.c"}, defines...)
	if out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return file
}

// TestGoIsItsDefinition compares bits with the definition in Go's doc comment. The definition does not depend on blocks, tiles or vectors,
// so the bits are the same on every CPU.
func TestGoIsItsDefinition(t *testing.T) {
	var lib Go
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 200)) // on both sides of a block
		p := newProduct(rapid.SampledFrom(transposes).Draw(t, "tA"), rapid.SampledFrom(transposes).Draw(t, "tB"),
			dim.Draw(t, "m"), dim.Draw(t, "n"), dim.Draw(t, "k"), rapid.IntRange(0, 9).Draw(t, "gap"),
			rapid.SampledFrom([]float32{1, -0.3}).Draw(t, "alpha"), rapid.SampledFrom([]float32{0, 1, 0.7}).Draw(t, "beta"))
		first, second := rapid.IntRange(0, p.k-1).Draw(t, "first"), rapid.IntRange(0, p.k-1).Draw(t, "second")
		p.insert(first, 1<<40)
		p.insert(second, -1<<40) // terms added between the two lose their last bits, so another order shows
		want := slices.Clone(p.c)
		a, b := vectors(p.a, p.lda, p.tA, p.m, p.k), vectors(p.b, p.ldb, flip(p.tB), p.n, p.k)
		for i := range p.m {
			for j := range p.n {
				s := 0.0
				for l, v := range a[i] {
					s += v * b[j][l]
				}
				result := float64(float64(p.alpha) * s)
				if c := &want[i*p.ldc+j]; p.beta == 0 {
					*c = float32(result)
				} else {
					*c = float32(result + float64(p.beta)*float64(*c))
				}
			}
		}
		p.run(&lib)
		if !slices.EqualFunc(p.c, want, sameBits) {
			t.Errorf("%d %d %d, %c%c: other bits than the definition", p.m, p.n, p.k, p.tA, p.tB)
		}
	})
}

// insert sets the given term of every element of c to v.
func (p product) insert(term int, v float32) {
	for i := range p.m {
		from(p.a, p.lda, p.tA, i, term)[0] = v
	}
	for j := range p.n {
		from(p.b, p.ldb, p.tB, term, j)[0] = 1
	}
}

// TestGoLeavesNothingOut checks that 0 times NaN or 0 times an infinity makes NaN, in every element and from every term.
func TestGoLeavesNothingOut(t *testing.T) {
	const m, n, k = 5, 26, 3
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		for _, tA := range transposes {
			for _, tB := range transposes {
				for term := range k {
					p := newProduct(tA, tB, m, n, k, 0, 1, 0)
					clear(p.a)
					clear(p.b)
					for i := range m {
						from(p.a, p.lda, tA, i, term)[0] = bad
					}
					p.run(new(Go))
					if i := slices.IndexFunc(p.c, func(v float32) bool { return v == v }); i >= 0 {
						t.Errorf("%c%c: element %d is %v with 0 times %v in its term %d", tA, tB, i, p.c[i], bad, term)
					}
				}
			}
		}
	}
}

// moved returns p with operands at other addresses. Each begins some elements after the start of its allocation.
func (p product) moved(a, b, c int) product {
	shift := func(x []float32, by int) []float32 { return append(make([]float32, by, by+len(x)), x...)[by:] }
	p.a, p.b, p.c = shift(p.a, a), shift(p.b, b), shift(p.c, c)
	return p
}

// TestAddressesDoNotCount checks that the bits of a product do not depend on the addresses of its operands. ZeRO changes the addresses of
// parameters, and other buckets change those of gradients.
func TestAddressesDoNotCount(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			dim, offset := rapid.IntRange(1, 70), rapid.IntRange(0, 15)
			p := newProduct(rapid.SampledFrom(transposes).Draw(t, "tA"), rapid.SampledFrom(transposes).Draw(t, "tB"),
				dim.Draw(t, "m"), dim.Draw(t, "n"), dim.Draw(t, "k"), rapid.IntRange(0, 5).Draw(t, "gap"), 1, 1)
			q := p.moved(offset.Draw(t, "a"), offset.Draw(t, "b"), offset.Draw(t, "c"))
			p = p.moved(0, 0, 0)
			p.run(lib)
			q.run(lib)
			if !slices.EqualFunc(p.c, q.c, sameBits) {
				t.Errorf("%d %d %d, %c%c: other bits at other addresses", p.m, p.n, p.k, p.tA, p.tB)
			}
		}))
	}
}

// TestConcurrentCallersGetRightProducts has concurrent callers whose stacks move, each with its own matrices, while the garbage
// collector runs. A pointer into a moved stack, or to freed memory, would show as a wrong result.
func TestConcurrentCallersGetRightProducts(t *testing.T) {
	for name, lib := range libraries(t) {
		t.Run(name, func(t *testing.T) {
			narrow, _ := Narrow(lib, BFloat16)
			stop, collected := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(collected)
				for {
					select {
					case <-stop:
						return
					default:
						runtime.GC()
					}
				}
			}()
			var callers sync.WaitGroup
			for i := range 8 {
				callers.Go(func() {
					for _, lib := range []Library{lib, narrow} {
						p := newProduct(blas.NoTrans, blas.Trans, 5+i, 40, 30+i, i, 1, 0)
						p.run(lib)
						want := slices.Clone(p.c)
						for round := range 50 {
							deep(round, func() { p.run(lib) })
							if !slices.EqualFunc(p.c, want, sameBits) {
								t.Errorf("caller %d: round %d differs", i, round)
								return
							}
						}
					}
				})
			}
			callers.Wait()
			close(stop)
			<-collected
		})
	}
}

// deep calls f on a stack that has grown.
func deep(frames int, f func()) byte {
	var frame [512]byte
	if frames == 0 {
		f()
	} else {
		frame[frames] = deep(frames-1, f)
	}
	return frame[frames]
}

func TestProductsAllocateNothing(t *testing.T) {
	for name, lib := range libraries(t) {
		for _, precision := range []Precision{Float32, BFloat16, Float16} {
			narrow, _ := Narrow(lib, precision)
			large := newProduct(blas.NoTrans, blas.NoTrans, 100, 260, 70, 0, 1, 1)
			small := newProduct(blas.Trans, blas.Trans, 3, 5, 7, 2, 1, 0)
			large.run(narrow)
			if got := testing.AllocsPerRun(100, func() { large.run(narrow); small.run(narrow) }); got != 0 {
				t.Errorf("%s, %s: %v allocations a round", name, precision, got)
			}
		}
	}
}

// BenchmarkProduct multiplies matrices with the sizes of dense layers, attention (128 128 32), convolutions (16 784 9 and 32 196 144), and
// the cost of a call (1 1 1).
func BenchmarkProduct(b *testing.B) {
	for name, lib := range libraries(b) {
		for _, size := range [][3]int{
			{1, 1, 1}, {64, 64, 64}, {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}, {64, 512, 784},
			{128, 128, 32}, {128, 32, 128}, {16, 784, 9}, {32, 196, 144},
		} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, size[0], size[1], size[2]), func(b *testing.B) {
				p := newProduct(blas.NoTrans, blas.NoTrans, size[0], size[1], size[2], 0, 1, 0)
				b.ReportAllocs()
				for b.Loop() {
					p.run(lib)
				}
				b.ReportMetric(2*float64(size[0]*size[1]*size[2])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
