package block

import (
	"syscall"
	"testing"
	"unsafe"
)

// atEnd returns n values at the end of mapped memory, so that a read or write beyond them crashes.
func atEnd(t *testing.T, n int) []float32 {
	t.Helper()
	page, size := syscall.Getpagesize(), 4*n
	whole := (size + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, whole+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mprotect(mem[whole:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&mem[whole-size])), n)
}

func TestNothingBehindTheEndIsTouched(t *testing.T) {
	for width := 1; width <= 40; width++ {
		for _, rows := range []int{1, 2, 5} {
			for _, gap := range []int{0, 1, 5} {
				size := (rows-1)*(width+gap) + width
				dst, src := View{atEnd(t, size), width + gap}, View{atEnd(t, size), width + gap}
				Copy(dst, src, Size{rows, width})
				Add(dst, src, Size{rows, width})
			}
		}
	}
}
