package vfstest_test

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

func twoClients(t *testing.T) (m *vfstest.Mem, a, b *vfstest.View) {
	m = vfstest.NewMem()
	must(t, m.Mkdir("/d"))
	return m, vfstest.NewView(m, 1), vfstest.NewView(m, 2)
}

// TestHeldViewAnswersFromItsCache checks what a client with a stale cache returns, and that Refresh ends this.
func TestHeldViewAnswersFromItsCache(t *testing.T) {
	t.Parallel()
	_, a, b := twoClients(t)
	write(t, a, "/d/old", "old")
	b.Hold()
	write(t, a, "/d/new", "new")
	must(t, a.Mkdir("/d/dir"))
	must(t, a.Remove("/d/old"))

	_, err := b.Stat("/d/new")
	wantErr(t, "stale negative lookup", err, fs.ErrNotExist)
	_, err = b.Open("/d/new")
	wantErr(t, "stale negative open", err, fs.ErrNotExist)
	if got := list(t, b, "/d"); !slices.Equal(got, []string{"old"}) {
		t.Errorf("the stale listing is %v", got)
	}
	_, err = b.Stat("/d/old")
	must(t, err) // from the attribute cache
	_, err = b.Open("/d/old")
	wantErr(t, "open of a removed file", err, syscall.ESTALE)
	_, err = b.Create("/d/dir/x")
	wantErr(t, "create in a folder not seen", err, fs.ErrNotExist)
	write(t, b, "/d/own", "own")
	if got := list(t, b, "/d"); !slices.Equal(got, []string{"old", "own"}) {
		t.Errorf("the stale listing with a file of one's own is %v", got)
	}
	_, err = b.Create("/d/new")
	wantErr(t, "O_EXCL is the server's to judge", err, fs.ErrExist)
	wantErr(t, "so is mkdir", b.Mkdir("/d/dir"), fs.ErrExist)
	write(t, b, "/d/dir/x", "x") // now the client knows the directory
	must(t, b.Remove("/d/dir/x"))

	b.Refresh()
	if got := list(t, b, "/d"); !slices.Equal(got, []string{"dir/", "new", "own"}) {
		t.Errorf("the fresh listing is %v", got)
	}
	if got := read(t, b, "/d/new"); got != "new" {
		t.Errorf("the new file holds %q", got)
	}
}

// TestViewShowsDataAfterClose: other clients see data only after the writer has closed the file and they have opened it.
func TestViewShowsDataAfterClose(t *testing.T) {
	t.Parallel()
	_, a, b := twoClients(t)
	w, err := a.Create("/d/a")
	must(t, err)
	early, err := b.Open("/d/a")
	must(t, err)
	_, err = io.WriteString(w, "hello")
	must(t, err)
	if got := read(t, b, "/d/a"); got != "" {
		t.Errorf("%q shows before the writer's close", got)
	}
	must(t, w.Close())
	if info, err := early.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("a file opened before the close has %v, %v", info, err)
	}
	if got := read(t, b, "/d/a"); got != "hello" {
		t.Errorf("%q shows after close and open", got)
	}
	late, err := b.Open("/d/a")
	must(t, err)
	must(t, a.Remove("/d/a"))
	_, err = late.ReadAt(make([]byte, 1), 0)
	wantErr(t, "read of a removed file", err, syscall.ESTALE)
	_, err = w.Write([]byte("x"))
	wantErr(t, "write after close", err, fs.ErrClosed)
}

// TestViewLosesRepliesAndNoOperations: an operation that returned an error has still happened, and some replies arrive.
func TestViewLosesRepliesAndNoOperations(t *testing.T) {
	t.Parallel()
	m, a, _ := twoClients(t)
	a.LoseReplies(50)
	lost := 0
	check := func(err, want error, there, gone string) {
		if err != nil {
			wantErr(t, "a lost reply", err, want)
			lost++
		}
		if _, err := m.Stat(there); err != nil {
			t.Errorf("it did not happen: %v", err)
		}
		_, err = m.Stat(gone)
		wantErr(t, "it did not happen", err, fs.ErrNotExist)
	}
	for range 50 {
		check(a.Mkdir("/d/x"), fs.ErrExist, "/d/x", "/d/y")
		check(a.Rename("/d/x", "/d/y"), fs.ErrNotExist, "/d/y", "/d/x")
		check(a.RemoveDir("/d/y"), fs.ErrNotExist, "/d", "/d/y")
	}
	if lost < 30 || lost > 120 {
		t.Errorf("%d of 150 replies were lost, want about half", lost)
	}
}

// TestViewReportsAFullDiskAtClose: the close, at the latest, reports that a write did not fit.
func TestViewReportsAFullDiskAtClose(t *testing.T) {
	t.Parallel()
	m, a, _ := twoClients(t)
	m.SetLimit(3)
	f, err := a.Create("/d/a")
	must(t, err)
	_, err = io.WriteString(f, "hello")
	must(t, err) // the data goes into the client's cache
	wantErr(t, "close of what did not fit", f.Close(), syscall.ENOSPC)
}
