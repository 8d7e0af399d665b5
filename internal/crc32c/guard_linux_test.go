package crc32c

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestChecksumReadsNothingOutside puts the bytes between two pages that cannot be read. Reading a byte before the first or after the last
// one is a fault.
func TestChecksumReadsNothingOutside(t *testing.T) {
	page := unix.Getpagesize()
	all, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(all)
	for _, edge := range [][]byte{all[:page], all[2*page:]} {
		if err := unix.Mprotect(edge, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	alone := all[page : 2*page]
	for n := range page + 1 {
		if first, last := Checksum(alone[:n]), Checksum(alone[page-n:]); first != last {
			t.Fatalf("%d bytes, all zero: %08x and %08x", n, first, last)
		}
	}
}
