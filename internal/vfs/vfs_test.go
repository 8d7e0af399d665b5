package vfs_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestRenameKnowsALostReply: if the rename has happened, an error that a repeated request may return is not an error. Otherwise it is.
func TestRenameKnowsALostReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answer error
		asks   bool // a repeated request may return this error
	}{{syscall.ENOENT, true}, {syscall.EEXIST, true}, {syscall.ESTALE, true}, {syscall.EIO, false}, {syscall.EACCES, false}} {
		for _, happened := range []bool{true, false} {
			for _, folder := range []bool{true, false} {
				t.Run(fmt.Sprint(test.answer, happened, folder), func(t *testing.T) {
					m := vfstest.NewMem()
					size := int64(-1)
					if folder {
						must(t, m.Mkdir("/a"))
					} else {
						vfstest.Put(t, m, "/a", []byte("hello"))
						size = 5
					}
					in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
						switch {
						case op.Kind != "rename":
							return vfstest.Fault{}
						case happened:
							return vfstest.Fault{AfterErr: test.answer}
						}
						return vfstest.Fault{Err: test.answer}
					})
					err := vfs.Rename(in, "/a", "/b", size)
					if want := happened && test.asks; want != (err == nil) || err != nil && !errors.Is(err, test.answer) {
						t.Errorf("error %v", err)
					}
				})
			}
		}
	}
}

// TestRenameOntoAnotherIsRefused: the file under the new name must be ours.
func TestRenameOntoAnotherIsRefused(t *testing.T) {
	t.Parallel()
	for size, folder := range map[int64]bool{4: false, -1: false, 5: true} {
		m := vfstest.NewMem()
		if folder {
			must(t, m.Mkdir("/b"))
		} else {
			vfstest.Put(t, m, "/b", []byte("other"))
		}
		if err := vfs.Rename(m, "/a", "/b", size); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("size %d onto folder %v: error %v", size, folder, err)
		}
	}
}

// TestReplaceKnowsALostReply: the size of the old file distinguishes a lost reply from a rename that did not happen, if it differs from the
// size of the new file.
func TestReplaceKnowsALostReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		old    string // empty: no old file
		hidden bool
	}{{"", true}, {"another", true}, {"other", false}} {
		for _, happened := range []bool{true, false} {
			m := vfstest.NewMem()
			vfstest.Put(t, m, "/a", []byte("hello"))
			if test.old != "" {
				vfstest.Put(t, m, "/b", []byte(test.old))
			}
			in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
				switch {
				case op.Kind != "rename":
					return vfstest.Fault{}
				case happened:
					return vfstest.Fault{AfterErr: syscall.ENOENT}
				}
				return vfstest.Fault{Err: syscall.ENOENT}
			})
			if err := vfs.Replace(in, "/a", "/b", 5); (err == nil) != (happened && test.hidden) {
				t.Errorf("over %q, happened %v: error %v", test.old, happened, err)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}
