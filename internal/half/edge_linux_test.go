package half

import (
	"syscall"
	"testing"
	"unsafe"
)

// TestNothingIsReadBehindTheEnd converts slices that end where the memory ends. Reading or writing beyond them is a fault.
func TestNothingIsReadBehindTheEnd(t *testing.T) {
	page := syscall.Getpagesize()
	atEnd := func() unsafe.Pointer {
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
		return unsafe.Pointer(&mem[0])
	}
	x, bits := unsafe.Slice((*float32)(atEnd()), page/4), unsafe.Slice((*uint16)(atEnd()), page/2)
	for _, f := range formats {
		for n := range 40 {
			x, bits := x[len(x)-n:], bits[len(bits)-n:]
			f.to(bits, x)
			f.from(x, bits)
			f.round(x, x)
		}
	}
}
