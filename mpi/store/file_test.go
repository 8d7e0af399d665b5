package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ddpbatch/internal/testkit"
)

// torchFile is the content of the file that PyTorch 1.13.1 left after set("k", "v"), add("n", 5), compare_set("c", "", "x"),
// delete_key("k") and the end of one of two FileStores.
const torchFile = "\x02\x00\x00\x00/k\x01\x00\x00\x00v" + "\x02\x00\x00\x00/n\x01\x00\x00\x005" + "\x02\x00\x00\x00/c\x01\x00\x00\x00x" +
	"\x03\x00\x00\x00-/k\x00\x00\x00\x00" + "\x08\x00\x00\x00cleanup/\x01\x00\x00\x001"

func tempPath(t testing.TB) string { return filepath.Join(t.TempDir(), "store") }

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expectList checks that a store holds want: "key=value" for each key, in the order of keys.
func expectList(t *testing.T, s Store, want string) {
	t.Helper()
	ctx := bounded(t)
	keys, err := s.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	values, err := s.MultiGet(ctx, keys...)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, key := range keys {
		got = append(got, fmt.Sprintf("%s=%s", key, values[i]))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("the store holds %q, want %q", got, want)
	}
}

// TestFileHasTorchsFormat makes the calls that produced torchFile.
func TestFileHasTorchsFormat(t *testing.T) {
	path := tempPath(t)
	f, err := OpenFile(path, FileConfig{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there before the first call: %v", err)
	}
	_, addErr := error(nil), f.Set(ctx, "k", []byte("v"))
	_, err = f.Add(ctx, "n", 5)
	_, err2 := f.CompareSet(ctx, "c", nil, []byte("x"))
	was, err3 := f.Delete(ctx, "k")
	gone, err4 := f.Delete(ctx, "k")
	if err := errors.Join(addErr, err, err2, err3, err4, f.Close()); err != nil || !was || gone {
		t.Fatalf("deleted %v and %v: %v", was, gone, err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != torchFile {
		t.Errorf("the file holds %q, %v; want %q", got, err, torchFile)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}

	last, err := OpenFile(path, FileConfig{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	expectList(t, last, "c=x n=5")
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the last worker left the file: %v", err)
	}
}

// TestFileIsReplaced removes the file under a store that has read it, and has another store create it anew, longer than before.
func TestFileIsReplaced(t *testing.T) {
	path := tempPath(t)
	a, b := openFile(t, path), openFile(t, path)
	if err := a.Set(bounded(t), "old", []byte("1")); err != nil {
		t.Fatal(err)
	}
	expectList(t, b, "old=1")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expectList(t, b, "")
	if err := a.Set(bounded(t), "much newer", []byte("2")); err != nil {
		t.Fatal(err)
	}
	expectList(t, b, "much newer=2")
	writeFile(t, path, "") // truncated, not replaced
	expectList(t, b, "")
}

// TestManyProcessesShareAFile has each goroutine act as a process, with a File of its own. The last one to close removes the file.
func TestManyProcessesShareAFile(t *testing.T) {
	const workers, rounds = 8, 10
	path := tempPath(t)
	ctx := bounded(t)
	var all sync.WaitGroup
	sums := make(chan int64, workers*rounds)
	for w := range workers {
		all.Go(func() {
			f, err := OpenFile(path, FileConfig{Workers: workers})
			if err != nil {
				t.Error(err)
				return
			}
			for r := range rounds {
				sum, err := f.Add(ctx, "count", 1)
				if err == nil {
					sums <- sum
					err = f.Append(ctx, fmt.Sprint("round/", r), []byte{byte('a' + w)})
				}
				if err == nil {
					err = f.Set(ctx, fmt.Sprint(w, "/", r), nil)
				}
				if err == nil {
					err = f.Wait(ctx, fmt.Sprint((w+1)%workers, "/", r))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			if got, err := f.Get(ctx, "round/0"); err != nil || len(got) != workers {
				t.Errorf("round 0: %q, %v", got, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(sums)
	seen := map[int64]bool{}
	for sum := range sums {
		seen[sum] = true
	}
	if len(seen) != workers*rounds {
		t.Errorf("%d different sums, want %d", len(seen), workers*rounds)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// If a file server holds a lease on a store's file for one of its clients, readers and writers wait for it as they wait for the lock.
func TestFileUnderLeaseIsWaitedFor(t *testing.T) {
	for name, use := range map[string]func(*File) error{
		"read":  func(f *File) error { _, err := f.Get(bounded(t), "k"); return err },
		"write": func(f *File) error { return f.Set(bounded(t), "k", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			writeFile(t, path, "\x02\x00\x00\x00/k\x01\x00\x00\x00v") // set("k", "v")
			testkit.Lease(t, path)
			if err := use(openFile(t, path)); err != nil {
				t.Error(err)
			}
		})
	}
}
