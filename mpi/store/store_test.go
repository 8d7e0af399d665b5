package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ddpbatch/internal/testkit"
)

// stores are all kinds of Store, each with its underlying memory and the prefix of its keys in that memory.
var stores = map[string]func(t testing.TB) (Store, *memory, string){
	"memory": func(testing.TB) (Store, *memory, string) {
		m := newMemory()
		return m, m, ""
	},
	"prefix": func(testing.TB) (Store, *memory, string) {
		m := newMemory()
		return Prefix(Prefix(m, "outer"), "inner"), m, "outer/inner/"
	},
	"server": func(t testing.TB) (Store, *memory, string) {
		s := serve(t, ServerConfig{})
		return s, s.memory, ""
	},
	"client": func(t testing.TB) (Store, *memory, string) {
		s := serve(t, ServerConfig{})
		return connect(t, s), s.memory, ""
	},
	"prefixed client": func(t testing.TB) (Store, *memory, string) {
		s := serve(t, ServerConfig{})
		return Prefix(connect(t, s), "p"), s.memory, "p/"
	},
	"file": func(t testing.TB) (Store, *memory, string) {
		f := openFile(t, filepath.Join(t.TempDir(), "store"))
		if err := f.Set(bounded(t), "k", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Delete(bounded(t), "k"); err != nil {
			t.Fatal(err)
		}
		return f, f.view, "" // values that tests put into the view stay there, because the store reads on from its position
	},
}

// forEachStore runs a test over every kind of store.
func forEachStore(t *testing.T, test func(t *testing.T, s Store, m *memory, prefix string)) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s, m, prefix := open(t)
			test(t, s, m, prefix)
		})
	}
}

func TestSetGetDelete(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, _ *memory, _ string) {
		ctx := bounded(t)
		for _, key := range []string{"k", "", "-k", "a/b", "\x00\xff\n", strings.Repeat("k", 4000)} {
			for _, value := range []string{"v", "", "another", "\x00\xff", strings.Repeat("v", 100_000)} {
				if err := s.Set(ctx, key, []byte(value)); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Get(ctx, key); err != nil || string(got) != value {
					t.Errorf("get %.10q: %.10q, %v; want %.10q", key, got, err, value)
				}
			}
			for i, want := range []bool{true, false} {
				if was, err := s.Delete(ctx, key); was != want || err != nil {
					t.Errorf("delete number %d of %.10q: %v, %v", i, key, was, err)
				}
			}
		}
	})
}

func TestValuesAreCopied(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, _ *memory, _ string) {
		ctx := bounded(t)
		mine := []byte("abc")
		if err := s.Set(ctx, "k", mine); err != nil {
			t.Fatal(err)
		}
		mine[0] = 'x'
		for range 2 {
			got, err := s.Get(ctx, "k")
			if err != nil || string(got) != "abc" {
				t.Fatalf("got %q, %v", got, err)
			}
			got[0] = 'y'
			if got, err = s.CompareSet(ctx, "k", []byte("no"), nil); err != nil || string(got) != "abc" {
				t.Fatalf("got %q, %v", got, err)
			}
			got[0] = 'z'
		}
	})
}

func TestAdd(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, _ *memory, _ string) {
		ctx := bounded(t)
		for _, step := range []struct{ delta, want int64 }{
			{1, 1}, {2, 3}, {3, 6}, {0, 6}, {-10, -4}, {math.MaxInt64, math.MaxInt64 - 4}, {4, math.MaxInt64},
			{math.MinInt64, -1}, {math.MinInt64 + 1, math.MinInt64},
		} {
			if got, err := s.Add(ctx, "n", step.delta); got != step.want || err != nil {
				t.Fatalf("add %d: %d, %v; want %d", step.delta, got, err, step.want)
			}
			if text, err := s.Get(ctx, "n"); string(text) != fmt.Sprint(step.want) || err != nil {
				t.Fatalf("the value is %q, %v; want %d", text, err, step.want)
			}
		}
	})
}

func TestCompareSet(t *testing.T) {
	const absent = "<absent>"
	for _, c := range []struct{ before, expected, desired, after string }{
		{absent, "", "new", "new"},
		{absent, "", "", ""},
		{absent, "old", "new", absent},
		{"", "", "new", "new"},
		{"", "old", "new", ""},
		{"old", "old", "new", "new"},
		{"old", "old", "", ""},
		{"old", "", "new", "old"},
		{"old", "ol", "new", "old"},
	} {
		t.Run(fmt.Sprintf("%q, %q to %q", c.before, c.expected, c.desired), func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
				ctx := bounded(t)
				if c.before != absent {
					if err := s.Set(ctx, "k", []byte(c.before)); err != nil {
						t.Fatal(err)
					}
				}
				got, err := s.CompareSet(ctx, "k", []byte(c.expected), []byte(c.desired))
				if err != nil || (got == nil) != (c.after == absent) || got != nil && string(got) != c.after {
					t.Errorf("got %q (nil: %v), %v; want %q", got, got == nil, err, c.after)
				}
				there, err := m.peek(prefix + "k")
				if err != nil || (there == nil) != (c.after == absent) || there != nil && string(there) != c.after {
					t.Errorf("the store holds %q, %v; want %q", there, err, c.after)
				}
			})
		})
	}
}

// calls makes one call of each kind and returns their errors.
func calls(ctx context.Context, s Store) map[string]error {
	return callsOn(ctx, s, "k", []byte("v"))
}

func callsOn(ctx context.Context, s Store, key string, value []byte) map[string]error {
	errs := map[string]error{"set": s.Set(ctx, key, value), "wait": s.Wait(ctx, key)}
	_, errs["get"] = s.Get(ctx, key)
	_, errs["add"] = s.Add(ctx, key, 1)
	_, errs["compareset"] = s.CompareSet(ctx, key, nil, value)
	_, errs["delete"] = s.Delete(ctx, key)
	errs["append"] = s.Append(ctx, key, value)
	_, errs["check"] = s.Check(ctx, key)
	_, errs["numkeys"] = s.NumKeys(ctx, key)
	_, errs["list"] = s.List(ctx, key)
	_, errs["multiget"] = s.MultiGet(ctx, key)
	errs["multiset"] = s.MultiSet(ctx, Item{key, value})
	return errs
}

// Goroutines draw numbers. Every number is announced, and the next goroutine waits for it.
func TestManyGoroutinesShareAStore(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, _ string) {
		const goroutines, rounds = 32, 20
		ctx := bounded(t)
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				for r := range rounds {
					if _, err := s.Add(ctx, "count", 1); err != nil {
						t.Error(err)
						return
					}
					mine := fmt.Sprintf("round/%d/%d", r, g)
					if err := s.Set(ctx, mine, []byte(mine)); err != nil {
						t.Error(err)
						return
					}
					theirs := fmt.Sprintf("round/%d/%d", r, (g+1)%goroutines)
					if got, err := s.Get(ctx, theirs); err != nil || string(got) != theirs {
						t.Errorf("%s: %q, %v", theirs, got, err)
						return
					}
				}
			})
		}
		all.Wait()
		if n, err := s.Add(ctx, "count", 0); n != goroutines*rounds || err != nil {
			t.Errorf("count is %d, %v", n, err)
		}
		if n := m.awaited(); n != 0 {
			t.Errorf("%d keys are still waited for", n)
		}
	})
}

// openFile opens a store's file for the duration of the test.
func openFile(t testing.TB, path string) *File {
	t.Helper()
	f, err := OpenFile(path, FileConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestEndedContextChangesNothing(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, err := range calls(ctx, s) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want context.Canceled", name, err)
			}
		}
		if _, err := m.peek(prefix + "k"); err != nil {
			t.Fatal(err)
		}
		if len(m.values) != 0 {
			t.Errorf("the store holds %d keys", len(m.values))
		}
	})
}

func TestClose(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		if prefix != "" {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Set(bounded(t), "k", nil); err != nil {
				t.Errorf("closing a view closed the store: %v", err)
			}
			return
		}
		waits := make(chan error, 2)
		go func() { _, err := s.Get(bounded(t), "k"); waits <- err }()
		go func() { waits <- s.Wait(bounded(t), "k") }()
		testkit.Eventually(t, "two calls wait", func() bool { return m.waiters("k") == 2 })
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := <-waits; !errors.Is(err, ErrClosed) {
				t.Errorf("a waiting call got %v", err)
			}
		}
		for name, err := range calls(bounded(t), s) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
}

// TestViewsOfAStoreAreApart uses two views of one store, and keys outside both.
func TestViewsOfAStoreAreApart(t *testing.T) {
	m := NewMemory()
	a, b := Prefix(m, "a"), Prefix(m, "b")
	ctx := bounded(t)
	for _, err := range []error{
		a.MultiSet(ctx, Item{"x", []byte("1")}, Item{"a/y", []byte("2")}), b.Set(ctx, "x", []byte("3")), m.Set(ctx, "a", nil),
		m.Set(ctx, "ab/x", nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		store  Store
		prefix string
		want   string
	}{
		"a": {a, "", "[a/y x]"}, "a, below a": {a, "a/", "[a/y]"}, "b": {b, "", "[x]"}, "b, below a": {b, "a", "[]"},
		"all": {m, "", "[a a/a/y a/x ab/x b/x]"}, "all that begin with a": {m, "a", "[a a/a/y a/x ab/x]"},
	} {
		keys, err := c.store.List(ctx, c.prefix)
		n, nerr := c.store.NumKeys(ctx, c.prefix)
		if err := errors.Join(err, nerr); err != nil || fmt.Sprint(keys) != c.want || n != len(keys) {
			t.Errorf("%s: %v, %d keys, %v; want %s", name, keys, n, err, c.want)
		}
	}
}

// TestMultiSetIsOneMoment has two writers each set three keys to one value, and readers check that the three keys agree.
func TestMultiSetIsOneMoment(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, _ *memory, _ string) {
		ctx := bounded(t)
		var all sync.WaitGroup
		for writer := range 2 {
			all.Go(func() {
				for round := range 50 {
					value := []byte(fmt.Sprint(writer, round))
					if err := s.MultiSet(ctx, Item{"a", value}, Item{"b", value}, Item{"c", value}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				for range 50 {
					got, err := s.MultiGet(ctx, "a", "b", "c")
					if err != nil || !bytes.Equal(got[0], got[1]) || !bytes.Equal(got[1], got[2]) {
						t.Errorf("got %q, %v", got, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
