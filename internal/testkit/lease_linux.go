package testkit

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Lease holds a lease on the file at path, as Samba and the kernel's NFS server do for their clients (fcntl(2), F_SETLEASE), and gives it back once
// somebody opens the file, as SIGIO asks for; a test in which nobody does fails. That signal is the process's: one test at a time.
func Lease(t testing.TB, path string) {
	t.Helper()
	LeaseUntil(t, path, func() error { return nil })
}

// LeaseUntil is Lease for who does something else before it gives the lease back.
func LeaseUntil(t testing.TB, path string, do func() error) {
	t.Helper()
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGIO)
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		signal.Stop(asked)
		holder.Close()
		t.Skip("this file system has no leases:", err)
	}
	released := make(chan error, 1)
	go func() {
		select {
		case <-asked:
			err := do()
			_, unlocked := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
			released <- errors.Join(err, unlocked)
		case <-t.Context().Done():
			released <- errors.New("nobody asked for it")
		}
	}()
	t.Cleanup(func() {
		signal.Stop(asked)
		if err := errors.Join(<-released, holder.Close()); err != nil {
			t.Errorf("the lease of %s: %v", path, err)
		}
	})
}
