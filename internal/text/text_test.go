package text

import "testing"

func TestQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"":               `""`,
		"123456789":      `"123456789"`,
		"a\x1b[1m":       `"a\x1b[1m"`,
		"12345678":       `"12345678"`,
		"1234567890":     `"123456 ... 1 bytes ... 890"`,
		"123456xxxxx890": `"123456 ... 5 bytes ... 890"`,
	} {
		if got := Quoted(text, 9); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
