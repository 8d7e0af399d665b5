package text

import (
	"syscall"
	"testing"
)

func TestQuotedShortensTheMiddle(t *testing.T) {
	for text, want := range map[string]string{
		"":               `""`,
		"123456789":      `"123456789"`,
		"a\x1b[1m":       `"a\x1b[1m"`,
		"12345678":       `"12345678"`,
		"1234567890":     `"123456 ... 1 byte ... 890"`,
		"123456xxxxx890": `"123456 ... 5 bytes ... 890"`,
		// only whole characters are kept:
		"ééééééé": `"ééé ... 6 bytes ... é"`,
		"aéééééé": `"aéé ... 6 bytes ... é"`,
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff": `"\xff\xff\xff\xff\xff\xff ... 1 byte ... \xff\xff\xff"`,
	} {
		if got := Quoted(text, 9); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"short", 9, "short"}, {"whole", 5, "whole"}, {"longer", 4, "long"}, {"é", 1, ""}, {"é", 2, "é"},
		{"aé", 2, "a"}, {"€€", 5, "€"}, {"a𝄞", 4, "a"}, {"a𝄞", 5, "a𝄞"},
		{"\xff\xff\xff", 2, "\xff\xff"}, {"\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80"}, {"\x80\x80", 1, ""},
	} {
		if got := Cut(test.text, test.most); got != test.want {
			t.Errorf("%d bytes of %q are %q, want %q", test.most, test.text, got, test.want)
		}
	}
}

func TestChoiceQuotesItsWords(t *testing.T) {
	for want, words := range map[string][]string{``: nil, `"a"`: {"a"}, `"a" or "b"`: {"a", "b"}, `"a", "b" or "c"`: {"a", "b", "c"}} {
		if got := Choice(words); got != want {
			t.Errorf("%q are %s, want %s", words, got, want)
		}
	}
}

func TestSignalName(t *testing.T) {
	for s, want := range map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", 35: "signal 35", 99: "signal 99"} {
		if got := SignalName(s); got != want {
			t.Errorf("%d is %q, want %q", s, got, want)
		}
	}
}
