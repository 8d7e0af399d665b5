package vec

import (
	"syscall"
	"testing"
	"unsafe"
)

// TestNothingIsReadBehindTheEnd runs every kernel on arrays at the end of mapped memory, so that a read beyond the end crashes.
func TestNothingIsReadBehindTheEnd(t *testing.T) {
	page := syscall.Getpagesize()
	atEnd := func() []float32 {
		mem, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Munmap(mem); err != nil {
				t.Error(err)
			}
		})
		if err := syscall.Mprotect(mem[page:], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		return unsafe.Slice((*float32)(unsafe.Pointer(&mem[0])), page/4)
	}
	a, b, c, d := atEnd(), atEnd(), atEnd(), atEnd()
	for _, s := range implementations() {
		for n := range 40 {
			from := len(a) - n
			o := operands{a: a[from:], b: b[from:], c: c[from:], d: d[from:]}
			for _, k := range exact {
				k.run(s, o)
			}
			for _, c := range curves {
				c.run(s, o.a, o.b)
			}
			s.sum(o.a)
			s.dot(o.a, o.b)
			s.max(o.a)
			s.finite(o.a)
			if n > 0 {
				s.moments(o.a)
			}
			s.normalize(o.a, o.b, o.c, o.d, 0, 1)
			s.normalizeSums(o.a, o.b, o.c, o.d, o.c, 0, 1)
			s.normalizeGrad(o.a, o.b, o.c, o.d, 0, 1, 0, 0)
		}
	}
}
