package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

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

// TestTooMuchTogetherIsRefused makes requests that exceed the limits on a single request.
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

// TestTooLongAListIsRefused lists as many keys as the limit allows, and one more.
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
