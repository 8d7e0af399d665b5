package slurm

import (
	"strings"
	"testing"
)

// hostileWords are values that have broken launchers: both grammars' special characters, in
// every place.
var hostileWords = []string{
	"", " ", "a", "a b", " a", "a ", "#", "a#b", ":", ":x", "=", "a=b", "-", "--", "~", "~/x", "*", "?", "[a-z]",
	"'", `"`, `\`, `\\`, `a\`, `'"'`, `"'"`, `\'`, `\"`, "'; touch pwned; '", `"; touch pwned; "`,
	"$(touch pwned)", "`touch pwned`", "$HOME", "${IFS}", "!!", "!x", "a;b", "a&b", "a|b", "a>b", "a<b", "(a)", "{a,b}",
	"%", "%j", "%%", "100%", "é", "日本語", "\u2028", "hetjob", "packjob", "#SBATCH --hold", "{{.RunDir}}", "{{", "a\u00a0b",
}

func TestCheckWord(t *testing.T) {
	for name, s := range map[string]string{
		"newline": "a\nb", "return": "a\rb", "nul": "a\x00b", "tab": "a\tb", "escape": "a\x1bb", "delete": "a\x7fb",
		"next line (C1)": "a\u0085b", "not UTF-8": "a\xffb", "half a rune": "\xc3", "too long": strings.Repeat("x", 4097),
	} {
		if err := checkWord(s); err == nil {
			t.Errorf("%s: %q was taken", name, s)
		}
	}
	for _, s := range append(hostileWords, strings.Repeat("x", 4096)) {
		if err := checkWord(s); err != nil {
			t.Errorf("%q was refused: %v", s, err)
		}
	}
}
