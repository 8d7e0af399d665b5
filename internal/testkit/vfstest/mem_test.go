package vfstest_test

import (
	"io"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

func TestMemLimitIsAFullDisk(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	m.SetLimit(10)
	f, err := m.Create("/a")
	must(t, err)
	n, err := io.WriteString(f, strings.Repeat("x", 12))
	wantErr(t, "write over the limit", err, syscall.ENOSPC)
	if n != 10 || content(t, m, "/a") != strings.Repeat("x", 10) {
		t.Errorf("%d bytes written, the file holds %q", n, content(t, m, "/a"))
	}
	must(t, m.Remove("/a"))
	space, err := m.Space("/")
	must(t, err)
	if space.Free != 10 || space.Total != 10 {
		t.Errorf("after the removal: %+v, want 10 free of 10", space)
	}
}

func TestMemPreallocateTakesRoom(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	m.SetLimit(10)
	a, err := m.Create("/a")
	must(t, err)
	must(t, a.Preallocate(8))
	b, err := m.Create("/b")
	must(t, err)
	wantErr(t, "reserve what is reserved", b.Preallocate(3), syscall.ENOSPC)
	n, err := io.WriteString(b, "xxx")
	wantErr(t, "write where it is reserved", err, syscall.ENOSPC)
	if n != 2 {
		t.Errorf("%d bytes written beside the reserved ones, want 2", n)
	}
	_, err = io.WriteString(a, strings.Repeat("y", 8))
	must(t, err)
	if got := content(t, m, "/a"); got != strings.Repeat("y", 8) {
		t.Errorf("the file with the room reserved holds %q", got)
	}
}
