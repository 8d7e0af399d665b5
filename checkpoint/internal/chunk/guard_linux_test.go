package chunk

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelsStayInside runs the best kernels in memory between inaccessible pages, where reading or writing a byte before the first or
// after the last one is a fault. The margins of TestKernelsGiveThePlainLoopsBytes only show writes.
func TestKernelsStayInside(t *testing.T) {
	const most = 300 // elements: several rounds of the widest loop, and every remainder
	r := rand.New(rand.NewPCG(1, 2))
	for _, atEnd := range []bool{false, true} {
		for _, l := range allLayouts {
			src, dst := lonely(t, most*l.Width), lonely(t, most*l.Width)
			var memory planes
			for k := range l.Width {
				memory[k] = lonely(t, most)
			}
			for n := range most + 1 {
				part := func(b []byte, n int) []byte {
					if atEnd {
						return b[len(b)-n:]
					}
					return b[:n:n]
				}
				raw, got := part(src, n*l.Width), part(dst, n*l.Width)
				for i := range raw {
					raw[i] = byte(r.Uint32())
				}
				var p planes
				for k := range l.Width {
					p[k] = part(memory[k], n)
				}
				split(&p, raw, l, &best)
				if join(got, &p, l, &best); !bytes.Equal(got, raw) {
					t.Fatalf("%+v, %d elements: they came back changed", l, n)
				}
			}
		}
	}
}

// lonely returns memory of n bytes, rounded up to whole pages, between two pages that cannot be accessed.
func lonely(t *testing.T, n int) []byte {
	t.Helper()
	page := unix.Getpagesize()
	n = (n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(all) })
	for _, edge := range [][]byte{all[:page], all[page+n:]} {
		if err := unix.Mprotect(edge, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return all[page : page+n]
}
