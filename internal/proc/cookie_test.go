package proc

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFindCookiesReadsAnyEnvironment(t *testing.T) {
	const v = CookieVariable + "="
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	for name, test := range map[string]struct {
		environ string
		want    []string
	}{
		"first":            {v + a + "\x00X=1\x00", []string{a}},
		"last":             {"X=1\x00" + v + a + "\x00", []string{a}},
		"two":              {v + a + "\x00X=\x00" + v + b + "\x00", []string{a, b}},
		"none":             {"X=1\x00", nil},
		"part of a name":   {"X" + v + a + "\x00", nil},
		"part of a value":  {"X=" + v + a + "\x00", nil},
		"another name":     {CookieVariable + "S=" + a + "\x00", nil},
		"not ended":        {v + a, nil},
		"longer":           {v + a + "a\x00", []string{a + "a"}},
		"much longer":      {v + a + strings.Repeat("a", 1<<20) + "\x00", []string{a + "a"}},
		"behind a big one": {strings.Repeat("x", 1<<20) + "\x00" + v + a + "\x00", []string{a}},
		"zeros":            {"\x00\x00\x00" + v + a + "\x00\x00", []string{a}},
	} {
		for _, size := range []int{1, 7, 16 << 10} {
			got := findCookies(strings.NewReader(test.environ), CookieVariable, make([]byte, size))
			if got.err != nil || got.empty || !slices.Equal(got.cookies, test.want) {
				t.Errorf("%s, in pieces of %d: %.80q; want %q", name, size, got.cookies, test.want)
			}
		}
	}
	if got := findCookies(strings.NewReader(""), CookieVariable, make([]byte, 8)); !got.empty || got.err != nil {
		t.Errorf("nothing: %+v", got)
	}
	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader(v+a+"\x00"), iotest.ErrReader(broken))
	if got := findCookies(r, CookieVariable, make([]byte, 8)); !errors.Is(got.err, broken) {
		t.Errorf("an error: %+v", got)
	}
}

// FuzzFindCookies compares findCookies with the plain way, which is to read all of the environment and split it.
func FuzzFindCookies(f *testing.F) {
	f.Add([]byte("X=1\x00"+CookieVariable+"=abc\x00"), 3)
	f.Fuzz(func(t *testing.T, environ []byte, size int) {
		size = 1 + max(0, size)%4096
		got := findCookies(bytes.NewReader(environ), CookieVariable, make([]byte, size)).cookies
		var want []string
		entries := strings.Split(string(environ), "\x00")
		for _, entry := range entries[:len(entries)-1] {
			if value, ok := strings.CutPrefix(entry, CookieVariable+"="); ok && len(want) < maxCookies {
				want = append(want, value[:min(len(value), 2*cookieBytes+1)])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestNewCookiesDiffer(t *testing.T) {
	if a, b := NewCookie(), NewCookie(); a == b || checkCookie(a) != nil {
		t.Errorf("%q, %q", a, b)
	}
}
