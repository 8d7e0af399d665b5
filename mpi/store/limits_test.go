package store

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) { // without the race detector
	conform(t, func(t *testing.T, s Store, m *memory, prefix string) {
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

func TestFull(t *testing.T) {
	conform(t, func(t *testing.T, s Store, m *memory, prefix string) {
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
