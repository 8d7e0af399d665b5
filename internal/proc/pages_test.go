package proc

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// smapsOf is a mapping as in smaps (proc(5)), of one page.
func smapsOf(mode, inode, anonymous, swap string) string {
	return "7f0000001000-7f0000002000 " + mode + " 00026000 fe:00 " + inode + "     /usr/lib/libc.so.6\n" +
		"Size:                  4 kB\nRss:                   4 kB\nAnonymous:             " + anonymous + " kB\n" +
		"FilePmdMapped:         0 kB\nSwap:                  " + swap + " kB\nSwapPss:               0 kB\nVmFlags: rd ex mr mw me \n"
}

func TestPagesThatTheFileHasNotAreKept(t *testing.T) {
	program := []mapping{{0x7f0000001000, 0x7f0000002000}}
	for name, tt := range map[string]struct {
		smaps string
		want  []mapping
	}{
		"code":                 {smapsOf("r-xp", "77", "0", "0"), program},
		"constants":            {smapsOf("r--p", "77", "0", "0"), program},
		"relocations":          {smapsOf("r--p", "77", "4", "0"), nil},
		"relocations in swap":  {smapsOf("r--p", "77", "0", "4"), nil},
		"data":                 {smapsOf("rw-p", "77", "0", "0"), nil},
		"shared":               {smapsOf("r--s", "77", "0", "0"), nil},
		"no file":              {smapsOf("r-xp", "0", "0", "0"), nil},
		"data, then code":      {smapsOf("rw-p", "77", "0", "0") + smapsOf("r-xp", "77", "0", "0"), program},
		"code, then constants": {smapsOf("r-xp", "77", "0", "0") + smapsOf("r--p", "77", "8", "0"), program},
		"unknown of its own":   {strings.ReplaceAll(smapsOf("r-xp", "77", "0", "0"), "Anonymous:", "Other:"), nil},
	} {
		if got, err := unchangedMappings(strings.NewReader(tt.smaps)); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %x, %v; want %x", name, got, err, tt.want)
		}
	}
	if got, err := unchangedMappings(strings.NewReader("rubbish\n")); err == nil {
		t.Errorf("rubbish: %x", got)
	}
}

// TestReleasedPagesComeBack: one that is the file's leaves memory, one that was written to stays, and both have what they had.
func TestReleasedPagesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 2*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapFile := func() []byte {
		pages, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(pages) })
		return pages
	}
	same, written := mapFile(), mapFile()
	written[7] = 1
	sum := same[0]
	for _, pages := range [][]byte{same, written} {
		if err := unix.Mprotect(pages, unix.PROT_READ); err != nil {
			t.Fatal(err)
		}
	}
	if !inMemory(t, same) || !inMemory(t, written) {
		t.Fatal("the pages are not in memory to begin with")
	}
	if err := ReleaseFilePages(); err != nil {
		t.Fatal(err)
	}
	if inMemory(t, same) || !inMemory(t, written) {
		t.Errorf("in memory: the file's page %v, the written one %v", inMemory(t, same), inMemory(t, written))
	}
	if same[0] != sum || written[7] != 1 {
		t.Errorf("the pages have %d and %d", same[0], written[7])
	}
}

// inMemory reports whether the page that pages begin with is in this process's memory: bit 63 of its entry (proc(5), pagemap).
func inMemory(t *testing.T, pages []byte) bool {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var entry [8]byte
	page := uintptr(unsafe.Pointer(&pages[0])) / uintptr(os.Getpagesize())
	if _, err := f.ReadAt(entry[:], int64(page)*8); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(entry[:])>>63 == 1
}
