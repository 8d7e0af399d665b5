package inspect

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Each tensor of an export has a file of its own, whose name cannot lead out of the folder.
func TestArrayFile(t *testing.T) {
	for name, want := range map[string]string{
		"0.weight": "0.weight.npy", "../x": "%2E.%2Fx.npy", "": ".npy", "a%b": "a%25b.npy", "\x00\u00e9": "%00%C3%A9.npy",
	} {
		if got, err := arrayFile(name); err != nil || got != want {
			t.Errorf("%q becomes %q, error %v; want %q", name, got, err, want)
		}
	}
	if _, err := arrayFile(strings.Repeat("a", 252)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("error %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		x, errX := arrayFile(a)
		y, errY := arrayFile(b)
		if errX == nil && errY == nil && (x == y) != (a == b) {
			t.Fatalf("%q and %q become %q and %q", a, b, x, y)
		}
		if strings.ContainsAny(x, "/\x00") {
			t.Fatalf("%q becomes %q", a, x)
		}
	})
}
