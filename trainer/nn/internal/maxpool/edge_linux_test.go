package maxpool

import (
	"syscall"
	"testing"
	"unsafe"
)

// atEnd returns n elements at the end of mapped memory, so that a read or write beyond them crashes.
func atEnd[E float32 | uint8](t *testing.T, n int) []E {
	t.Helper()
	page, size := syscall.Getpagesize(), n*int(unsafe.Sizeof(*new(E)))
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
	return unsafe.Slice((*E)(unsafe.Pointer(&mem[whole-size])), n)
}

// Assembly may read and write beyond the row that it works on, but never beyond the last row.
func TestNothingBehindTheEndIsTouched(t *testing.T) {
	for width := 1; width <= 20; width++ {
		for _, rows := range []int{1, 2, 3, 5, 9, 10} {
			n := rows * width
			y, from, x := atEnd[float32](t, n), atEnd[uint8](t, n), atEnd[float32](t, 4*n)
			Max(y, from, x, width, 0, Nowhere)
			Spread(x, from, y, width)
		}
	}
}
