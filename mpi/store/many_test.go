package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// TestViewsAreApart has two views of one store, and keys beside them.
func TestViewsAreApart(t *testing.T) {
	m := NewMemory()
	a, b := Prefix(m, "a"), Prefix(m, "b")
	ctx := bounded(t)
	for _, err := range []error{
		a.MultiSet(ctx, Item{"x", []byte("1")}, Item{"a/y", []byte("2")}), b.Set(ctx, "x", []byte("3")), m.Set(ctx, "a", nil), m.Set(ctx, "ab/x", nil),
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

// TestTooMuchTogether asks for more at a time than there may be.
func TestTooMuchTogether(t *testing.T) {
	conform(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		half := bytes.Repeat([]byte("v"), MaxTogether/2-4)
		var items []Item
		for _, key := range []string{"a", "b", "c"} {
			items = append(items, Item{key, half})
			if err := m.set(prefix+key, half); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.MultiGet(ctx, "a", "b"); err != nil || len(got) != 2 || !bytes.Equal(got[1], half) {
			t.Errorf("what is just not too much: %d values, %v", len(got), err)
		}
		if _, err := s.MultiGet(ctx, "a", "b", "c"); !errors.Is(err, ErrTooLarge) {
			t.Errorf("multiget: %v", err)
		}
		if err := s.MultiSet(ctx, items...); !errors.Is(err, ErrTooLarge) {
			t.Errorf("multiset: %v", err)
		}
	})
}

// TestLongList lists as many keys as there may be, and one more.
func TestLongList(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	for i := range MaxRequestKeys {
		if err := s.set(fmt.Sprint("list/", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, store := range []Store{c, Prefix(c, "list"), s} {
		if keys, err := store.List(bounded(t), ""); err != nil || len(keys) != MaxRequestKeys {
			t.Errorf("as many keys as there may be: %d, %v", len(keys), err)
		}
	}
	if err := s.set("more", nil); err != nil {
		t.Fatal(err)
	}
	for _, store := range []Store{c, s} {
		if _, err := store.List(bounded(t), ""); !errors.Is(err, ErrTooLarge) {
			t.Errorf("one more: %v", err)
		}
		if n, err := store.NumKeys(bounded(t), ""); err != nil || n != MaxRequestKeys+1 {
			t.Errorf("%d keys, %v", n, err)
		}
	}
}

// TestMultiSetIsOneMoment has two writers set three keys to one value each, and readers look.
func TestMultiSetIsOneMoment(t *testing.T) {
	conform(t, func(t *testing.T, s Store, _ *memory, _ string) {
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
