package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestStoresBehaveLikeAMap makes the same random calls on every kind of store and on a map.
func TestStoresBehaveLikeAMap(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			s, m, prefix := open(t)
			rapid.Check(t, func(t *rapid.T) {
				model := &mapModel{store: s, values: map[string][]byte{}}
				t.Repeat(rapid.StateMachineActions(model))
				for key := range model.values { // the next run needs an empty store
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

// mapModel holds a store and the values that it should have. A nil value stands for a key that does not exist.
type mapModel struct {
	store  Store
	values map[string][]byte
}

var (
	someKey   = rapid.SampledFrom([]string{"", "a", "b", "a/b", "\x00"})
	someValue = rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.SampledFrom([][]byte{{}, []byte("1"), []byte("-5"), []byte("9223372036854775807")}))
	over = func() context.Context { ctx, cancel := context.WithCancel(context.Background()); cancel(); return ctx }()
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
	overflow := (number^sum)&(delta^sum) < 0 // both have another sign than the sum
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
