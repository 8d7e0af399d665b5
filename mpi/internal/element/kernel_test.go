package element

import (
	"slices"
	"strings"
	"testing"
)

// TestKernelOf checks which operations exist, and the error for the others.
func TestKernelOf(t *testing.T) {
	numbers := []Op{Sum, Product, Avg, PreMulSum}
	comparing := append([]Op{Min, Max}, numbers...)
	for _, typ := range allTypes() {
		has := comparing
		if _, ok := integerTypes[typ]; ok {
			has = append([]Op{BAnd, BOr, BXor}, comparing...)
		}
		switch typ {
		case Complex64, Complex128:
			has = numbers
		case Bool:
			has = []Op{Sum, Product, Min, Max, BAnd, BOr, BXor}
		}
		for _, op := range allOps() {
			want := slices.Contains(has, op)
			kernel, err := KernelOf(typ, op)
			if (kernel != nil) != want || (err == nil) != want {
				t.Errorf("%v %v: kernel %t, error %v", typ, op, kernel != nil, err)
			}
			if err == nil {
				continue
			}
			for _, say := range append([]Op{op}, has...) {
				if !strings.Contains(err.Error(), say.String()) || !strings.Contains(err.Error(), typ.String()) {
					t.Errorf("%v %v: %q does not name %v", typ, op, err, say)
				}
			}
		}
	}
	for _, c := range []struct {
		t  Type
		op Op
	}{{0, Sum}, {Float32, 0}, {Float32, 255}} {
		if kernel, err := KernelOf(c.t, c.op); kernel != nil || err == nil {
			t.Errorf("%v has a kernel for %v", c.t, c.op)
		}
		if _, ok := Kernel2Of(c.t, c.op); ok {
			t.Errorf("%v has a Kernel2 for %v", c.t, c.op)
		}
	}
}

func TestKernelsRefuseOtherLengths(t *testing.T) {
	long, short := make([]byte, 256), make([]byte, 128, 256)
	for _, typ := range []Type{Float32, Bool, Uint8} {
		for _, op := range []Op{Sum, Max} {
			for _, args := range [][3][]byte{{long, short, long}, {long, long, short}, {short, long, long}} {
				mustPanic(t, func() { kernels[typ][op](args[0], args[1], args[2]) })
			}
		}
	}
	if kernel, ok := Kernel2Of(Float32, Sum); ok {
		mustPanic(t, func() { kernel(long, short, long, long) })
		mustPanic(t, func() { kernel(short, long, long, long) })
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() != badLength {
			t.Error("different lengths went unseen")
		}
	}()
	f()
}

func TestKernelsDoNotAllocate(t *testing.T) { // without the race detector
	a, b := make([]byte, 4096+16), make([]byte, 4096+16)
	for _, typ := range allTypes() {
		for op, kernel := range kernels[typ] {
			if kernel == nil {
				continue
			}
			// The runtime may allocate in the meantime, but less than once a run, and AllocsPerRun rounds that down over many runs.
			if n := testing.AllocsPerRun(100, func() {
				kernel, _ := KernelOf(typ, Op(op))
				kernel(a, a, b)
				if kernel, ok := Kernel2Of(typ, Op(op)); ok {
					kernel(a, b, a, b)
				}
				if op == int(Avg) {
					_, _ = Scale(typ, a, 1), Divide(typ, a, 3)
				}
			}); n != 0 {
				t.Errorf("%v %v: %v allocations", typ, Op(op), n)
			}
		}
	}
}
