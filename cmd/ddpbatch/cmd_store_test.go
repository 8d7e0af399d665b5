package main

import (
	"errors"
	"io"
	"testing"

	"ddpbatch/internal/usage"
)

func TestCheckStoreAddr(t *testing.T) {
	for addr, ok := range map[string]bool{
		"node1:29400": true, "[::1]:1": true, ":65535": true,
		"": false, "node1": false, "node1:": false, "node1:0": false, "node1:65536": false, "node1:-1": false,
		"node1:http": false, "::1:29400": false,
	} {
		err := checkStoreAddr(addr)
		var wrong *usage.Error
		if ok && err != nil || !ok && !errors.As(err, &wrong) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestShownKey(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "rank/0": "rank/0", "a key": "a key", "\u00fc": "\u00fc", `"`: `"`,
		"two\nlines": `"two\nlines"`, "\x1b[31mred": `"\x1b[31mred"`, "\xff": `"\xff"`, "tab\t": `"tab\t"`, "c1\u009b": `"c1\u009b"`,
		"rank/\u202e0": `"rank/\u202e0"`, "\u2066key": `"\u2066key"`,
	} {
		if got := shownKey(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}

func TestShownValue(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "node1:29400": "node1:29400", "two\n\tlines": "two\n\tlines", "\u00fc": "\u00fc",
		"\x1b[31mred": `"\x1b[31mred"`, "c1\u009b": `"c1\u009b"`, "\xff": `"\xff"`,
		"left\u202eright": `"left\u202eright"`, "\u2066x": `"\u2066x"`,
	} {
		for _, terminal := range []bool{true, false} {
			e := &env{Terminal: func(io.Writer) (int, bool) { return 80, terminal }}
			if !terminal {
				want = value
			}
			if got := shownValue(e, []byte(value)); got != want {
				t.Errorf("terminal %t: %q is shown as %s, want %s", terminal, value, got, want)
			}
		}
	}
}
