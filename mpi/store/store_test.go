package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit"
)

// stores are all kinds of Store, each with the memory at its bottom and the prefix of its keys there.
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
		return f, f.view, "" // what tests put into the view stays there: it reads on where it is
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

func TestAddRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		delta int64
	}{
		"text":            {"seven", 1},
		"empty":           {"", 1},
		"hexadecimal":     {"0x10", 1},
		"fraction":        {"1.5", 1},
		"blank":           {" 1", 1},
		"too large":       {"9223372036854775808", 0},
		"sum too large":   {"9223372036854775807", 1},
		"sum too small":   {"-9223372036854775808", -1},
		"sum far too low": {"-2", math.MinInt64},
	} {
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s Store, _ *memory, _ string) {
				ctx := bounded(t)
				if err := s.Set(ctx, "n", []byte(c.value)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Add(ctx, "n", c.delta); !errors.Is(err, ErrNotNumber) || !strings.Contains(err.Error(), `n"`) {
					t.Errorf("error %v, want ErrNotNumber and the key", err)
				}
				if got, err := s.Get(ctx, "n"); string(got) != c.value || err != nil {
					t.Errorf("the value became %q, %v", got, err)
				}
			})
		})
	}
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

// Numbers are drawn, and every one is announced and waited for by its neighbour.
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

// openFile opens a store's file for the length of the test.
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

// TestViewsOfAStoreAreApart has two views of one store, and keys beside them.
func TestViewsOfAStoreAreApart(t *testing.T) {
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

// TestTooMuchTogetherIsRefused asks for more at a time than there may be.
func TestTooMuchTogetherIsRefused(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		half := bytes.Repeat([]byte("v"), MaxTogether/2-4)
		var items []Item
		for _, key := range []string{"a", "b", "c"} {
			items = append(items, Item{key, half})
			if err := m.Set(t.Context(), prefix+key, half); err != nil {
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

// TestTooLongAListIsRefused lists as many keys as there may be, and one more.
func TestTooLongAListIsRefused(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	for i := range MaxRequestKeys {
		if err := s.Set(t.Context(), fmt.Sprint("list/", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, store := range []Store{c, Prefix(c, "list"), s} {
		if keys, err := store.List(bounded(t), ""); err != nil || len(keys) != MaxRequestKeys {
			t.Errorf("as many keys as there may be: %d, %v", len(keys), err)
		}
	}
	if err := s.Set(t.Context(), "more", nil); err != nil {
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

func TestStoreKeepsItsLimits(t *testing.T) { // without the race detector
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		longest := strings.Repeat("k", MaxKey-len(prefix))
		largest := bytes.Repeat([]byte("v"), MaxValue)
		if err := s.Set(ctx, longest, largest); err != nil {
			t.Fatal(err)
		}
		if got, err := s.CompareSet(ctx, longest, largest, largest); err != nil || len(got) != MaxValue {
			t.Errorf("compare and set: %d bytes, %v", len(got), err)
		}
		if got, err := s.Get(ctx, longest); err != nil || !bytes.Equal(got, largest) {
			t.Errorf("get: %d bytes, %v", len(got), err)
		}
		for name, err := range callsOn(ctx, s, longest+"k", nil) {
			if !errors.Is(err, ErrTooLarge) || len(err.Error()) > 300 {
				t.Errorf("%s with a longer key: %.400v", name, err)
			}
		}
		larger := append(slices.Clone(largest), 'v')
		for name, err := range map[string]error{
			"set":        s.Set(ctx, "larger", larger),
			"compareset": func() error { _, err := s.CompareSet(ctx, "larger", nil, larger); return err }(),
			"append":     s.Append(ctx, "larger", larger),
			"append 1":   s.Append(ctx, longest, []byte("v")),
			"multiset":   s.MultiSet(ctx, Item{"small", nil}, Item{"larger", larger}),
		} {
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s with a larger value: %v", name, err)
			}
		}
		if value, _ := m.peek(prefix + "larger"); value != nil {
			t.Error("the larger value is there")
		}
		if value, _ := m.peek(prefix + "small"); value != nil {
			t.Error("the item before the larger one is there")
		}
	})
}

func TestFullStoreRefusesMore(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		m.maxKeys, m.maxBytes = 3, 3*(len(prefix)+1)+10
		for key, value := range map[string]string{"a": "1", "b": "22", "c": "333"} {
			if err := s.Set(ctx, key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		for name, err := range map[string]error{
			"a key more":          s.Set(ctx, "d", nil),
			"a byte too many":     s.Set(ctx, "a", []byte("123456")),
			"a number more":       func() error { _, err := s.Add(ctx, "d", 1); return err }(),
			"an end more":         s.Append(ctx, "a", []byte("23456")),
			"one of two more":     s.MultiSet(ctx, Item{"a", []byte("2")}, Item{"d", nil}),
			"two of which one":    s.MultiSet(ctx, Item{"a", []byte("1234")}, Item{"b", []byte("12345")}),
			"a comparison's more": func() error { _, err := s.CompareSet(ctx, "d", nil, nil); return err }(),
		} {
			if !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v, want ErrFull", name, err)
			}
		}
		if got, err := s.MultiGet(ctx, "a", "b", "c"); err != nil || string(got[0])+string(got[1])+string(got[2]) != "122333" {
			t.Errorf("the values became %q, %v", got, err)
		}
		if err := s.MultiSet(ctx, Item{"a", []byte("123456")}, Item{"a", []byte("12345")}); err != nil {
			t.Errorf("a later value that just fits: %v", err)
		}
		if err := s.Set(ctx, "a", []byte("12345")); err != nil {
			t.Errorf("a value that just fits: %v", err)
		}
		if _, err := s.Delete(ctx, "c"); err != nil {
			t.Fatal(err)
		}
		if err := s.Set(ctx, "d", []byte("333")); err != nil {
			t.Errorf("after room was made: %v", err)
		}
	})
}

// TestStoresBehaveLikeAMap drives every kind of store and a map with the same random calls.
func TestStoresBehaveLikeAMap(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s, m, prefix := open(t)
			rapid.Check(t, func(t *rapid.T) {
				model := &mapModel{store: s, values: map[string][]byte{}}
				t.Repeat(rapid.StateMachineActions(model))
				for key := range model.values { // the next run finds it empty
					if _, err := m.Delete(t.Context(), prefix+key); err != nil {
						t.Fatal(err)
					}
				}
				if len(m.values) != 0 || m.size != 0 || m.awaited() != 0 {
					t.Fatalf("left over: %d keys, %d bytes, %d awaited", len(m.values), m.size, m.awaited())
				}
			})
		})
	}
}

// mapModel is what a store should be. A nil value is an absent one.
type mapModel struct {
	store  Store
	values map[string][]byte
}

var (
	someKey   = rapid.SampledFrom([]string{"", "a", "b", "a/b", "\x00"})
	someValue = rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 40), rapid.SampledFrom([][]byte{{}, []byte("1"), []byte("-5"), []byte("9223372036854775807")}))
	over      = func() context.Context { ctx, cancel := context.WithCancel(context.Background()); cancel(); return ctx }()
)

func (m *mapModel) Set(t *rapid.T) {
	key, value := someKey.Draw(t, "key"), someValue.Draw(t, "value")
	if err := m.store.Set(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
	m.values[key] = append([]byte{}, value...)
}

func (m *mapModel) Get(t *rapid.T) {
	key := someKey.Draw(t, "key")
	want, ok := m.values[key]
	if !ok {
		return // it would wait
	}
	if got, err := m.store.Get(t.Context(), key); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("get %q: %q, %v; want %q", key, got, err, want)
	}
}

func (m *mapModel) Add(t *rapid.T) {
	key, delta := someKey.Draw(t, "key"), rapid.Int64().Draw(t, "delta")
	old, ok := m.values[key]
	number, parseErr := strconv.ParseInt(string(old), 10, 64)
	sum := number + delta
	overflow := (number^sum)&(delta^sum) < 0 // both have the other sign than the sum
	got, err := m.store.Add(t.Context(), key, delta)
	if ok && parseErr != nil || overflow {
		if !errors.Is(err, ErrNotNumber) {
			t.Fatalf("add %d to %q: %d, %v; want ErrNotNumber", delta, old, got, err)
		}
		return
	}
	if err != nil || got != sum {
		t.Fatalf("add %d to %q: %d, %v; want %d", delta, old, got, err, sum)
	}
	m.values[key] = []byte(strconv.FormatInt(sum, 10))
}

func (m *mapModel) CompareSet(t *rapid.T) {
	key, desired := someKey.Draw(t, "key"), someValue.Draw(t, "desired")
	expected := someValue.Draw(t, "expected")
	if rapid.Bool().Draw(t, "right") {
		expected = m.values[key]
	}
	if bytes.Equal(m.values[key], expected) {
		m.values[key] = append([]byte{}, desired...)
	}
	got, err := m.store.CompareSet(t.Context(), key, expected, desired)
	want := m.values[key]
	if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Fatalf("compare %q and set: %q, %v; want %q", key, got, err, want)
	}
}

func (m *mapModel) Delete(t *rapid.T) {
	key := someKey.Draw(t, "key")
	_, want := m.values[key]
	delete(m.values, key)
	if got, err := m.store.Delete(t.Context(), key); err != nil || got != want {
		t.Fatalf("delete %q: %v, %v; want %v", key, got, err, want)
	}
}

func (m *mapModel) Append(t *rapid.T) {
	key, value := someKey.Draw(t, "key"), someValue.Draw(t, "value")
	if err := m.store.Append(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
	m.values[key] = append(bytes.Clone(m.values[key]), append([]byte{}, value...)...)
	if m.values[key] == nil {
		m.values[key] = []byte{}
	}
}

func (m *mapModel) MultiSet(t *rapid.T) {
	keys := rapid.SliceOfN(someKey, 0, 4).Draw(t, "keys")
	var items []Item
	for _, key := range keys {
		items = append(items, Item{key, someValue.Draw(t, "value")})
	}
	if err := m.store.MultiSet(t.Context(), items...); err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		m.values[item.Key] = append([]byte{}, item.Value...)
	}
}

func (m *mapModel) MultiGet(t *rapid.T) {
	var keys []string
	for key := range m.values {
		keys = append(keys, key, key)
	}
	got, err := m.store.MultiGet(t.Context(), keys...)
	if err != nil || len(got) != len(keys) {
		t.Fatalf("get %q: %q, %v", keys, got, err)
	}
	for i, key := range keys {
		if !bytes.Equal(got[i], m.values[key]) {
			t.Fatalf("get %q: %q, want %q", key, got[i], m.values[key])
		}
	}
}

func (m *mapModel) Look(t *rapid.T) {
	prefix := rapid.SampledFrom([]string{"", "a", "a/", "b", "c"}).Draw(t, "prefix")
	var want []string
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	if got, err := m.store.List(t.Context(), prefix); err != nil || !slices.Equal(got, want) {
		t.Fatalf("list %q: %q, %v; want %q", prefix, got, err, want)
	}
	if n, err := m.store.NumKeys(t.Context(), prefix); err != nil || n != len(want) {
		t.Fatalf("%d keys begin with %q, %v; want %d", n, prefix, err, len(want))
	}
	keys := rapid.SliceOfN(someKey, 0, 4).Draw(t, "keys")
	all := true
	for _, key := range keys {
		_, there := m.values[key]
		all = all && there
	}
	if got, err := m.store.Check(t.Context(), keys...); err != nil || got != all {
		t.Fatalf("check %q: %v, %v; want %v", keys, got, err, all)
	}
}

func (m *mapModel) Wait(t *rapid.T) {
	var keys []string
	for key := range m.values {
		keys = append(keys, key)
	}
	if err := m.store.Wait(t.Context(), keys...); err != nil {
		t.Fatalf("wait for %q: %v", keys, err)
	}
}

func (m *mapModel) GetWithEndedContext(t *rapid.T) {
	if _, err := m.store.Get(over, someKey.Draw(t, "key")); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

func (m *mapModel) Check(*rapid.T) {}
