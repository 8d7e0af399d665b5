package slurm

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shellWords lets a real shell read words, each as quoted, and returns what it made of them.
func shellWords(t interface{ Fatalf(string, ...any) }, shell string, words []string) []string {
	cmd := exec.Command(shell)
	cmd.Stdin = strings.NewReader("printf '%s\\0' " + ShellJoin(words) + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s on %q: %v %s", shell, words, err, stderr.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func shells(t testing.TB) []string {
	var found []string
	for _, shell := range []string{"bash", "dash"} {
		if path, err := exec.LookPath(shell); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Skip("neither bash nor dash on the PATH")
	}
	return found
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"":            "''",
		"/a/b-c.d_e":  "/a/b-c.d_e",
		"--nodes=2":   "--nodes=2",
		"a b":         "'a b'",
		"it's":        `'it'\''s'`,
		"~":           "'~'",
		"$(reboot)":   "'$(reboot)'",
		"two\nlines":  "'two\nlines'",
		"{a,b}":       "'{a,b}'",
		`back\slash"`: `'back\slash"'`,
	} {
		if got := ShellQuote(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

func TestShellQuoteHostile(t *testing.T) {
	var words []string
	for _, w := range hostileWords {
		words = append(words, w, "--x="+w, w+"\n"+w, "\x01\x7f\xff\t"+w)
	}
	for _, shell := range shells(t) {
		if got := shellWords(t, shell, words); !slices.Equal(got, words) {
			for i := range words {
				if i >= len(got) || got[i] != words[i] {
					t.Fatalf("%s read %q as %q", shell, words[i], got[i])
				}
			}
			t.Fatalf("%s read %d words as %d", shell, len(words), len(got))
		}
	}
}

func TestShellQuoteRandom(t *testing.T) {
	word := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(hostileWords), 0, 5).Draw(t, "parts"), "")
	})
	found := shells(t)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(word, 1, 200).Draw(t, "words")
		for _, shell := range found {
			if got := shellWords(t, shell, words); !slices.Equal(got, words) {
				t.Fatalf("%s read %q as %q", shell, words, got)
			}
		}
	})
}

func TestShellAssign(t *testing.T) {
	values := map[string]string{"DDPBATCH_RUN_DIR": "/r/it's $HOME", "EMPTY": "", "WITH_EQUALS": "a=b=c", "LINES": "a\nb"}
	for _, shell := range shells(t) {
		for name, value := range values {
			cmd := exec.Command(shell, "-c", "export "+ShellAssign(name+"="+value)+"; printf %s \"$"+name+"\"")
			if out, err := cmd.Output(); err != nil || string(out) != value {
				t.Errorf("%s: %s is %q (%v), want %q", shell, name, out, err, value)
			}
		}
	}
}

func FuzzShellQuote(f *testing.F) {
	f.Add(strings.Join(hostileWords, "\x00"))
	shell := shells(f)[0]
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "\x00") // one shell for many words
		if got := shellWords(t, shell, words); !slices.Equal(got, words) {
			t.Fatalf("%s read %q as %q", shell, words, got)
		}
	})
}
