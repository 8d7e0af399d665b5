package slurm

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// hostileWords are values that have broken launchers: the special characters of both grammars, in every position.
var hostileWords = []string{
	"", " ", "a", "a b", " a", "a ", "#", "a#b", ":", ":x", "=", "a=b", "-", "--", "~", "~/x", "*", "?", "[a-z]",
	"'", `"`, `\`, `\\`, `a\`, `'"'`, `"'"`, `\'`, `\"`, "'; touch pwned; '", `"; touch pwned; "`,
	"$(touch pwned)", "`touch pwned`", "$HOME", "${IFS}", "!!", "!x", "a;b", "a&b", "a|b", "a>b", "a<b", "(a)", "{a,b}",
	"%", "%j", "%%", "100%", "é", "日本語", "\u2028", "hetjob", "packjob", "#SBATCH --hold", "{{.RunDir}}", "{{", "a\u00a0b",
}

func TestControlCharactersAreNoWord(t *testing.T) {
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

// readDirective splits the text after "#SBATCH " into words, by the grammar of launching.md §4.3, which was derived from Slurm's opt.c. It
// is the reference for the quoter, and TestDirectiveIsReadAsSbatchDoes compares it with the answers of a real sbatch. (The paper is wrong
// in one point, at least for 22.05: outside quotes a blank ends the word even after a backslash.)
func readDirective(line string) (words []string, err error) {
	for {
		line = strings.TrimLeft(line, " \t\n\v\f\r")
		if line == "" {
			return words, nil
		}
		if line[0] == ':' {
			return nil, errors.New("unexpected colon")
		}
		word, rest, some, err := readDirectiveWord(line)
		if err != nil {
			return nil, err
		}
		if some {
			words = append(words, word)
		}
		if strings.HasPrefix(rest, "#") {
			return words, nil
		}
		line = rest
	}
}

func readDirectiveWord(line string) (word, rest string, some bool, err error) {
	var out []byte
	quote, escaped := byte(0), false
	i := 0
	for ; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\n', quote == 0 && strings.IndexByte(" \t\v\f\r", c) >= 0: // even after a backslash
			goto end
		case escaped:
			out, some, escaped = append(out, c), true, false
		case c == '\\':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '#':
			goto end
		default:
			out, some = append(out, c), true
		}
	}
end:
	if quote != 0 {
		return "", "", false, errors.New("unmatched quote")
	}
	return string(out), line[i:], some, nil
}

// The words are those that sbatch -vv of Slurm 22.05.8 read in each line.
func TestDirectiveIsReadAsSbatchDoes(t *testing.T) {
	for line, want := range map[string][]string{
		`--job-name=exp#3`:                    {"--job-name=exp"},
		`--job-name='a\b'`:                    {"--job-name=ab"},
		`--job-name="a\"b c#d"`:               {"--job-name=a\"b c#d"},
		`--job-name=xhetjoby`:                 {"--job-name=xhetjoby"},
		`--job-name=":x"`:                     {"--job-name=:x"},
		`--job-name=:x`:                       {"--job-name=:x"},
		`--comment="" --job-name=y`:           {"--comment=", "--job-name=y"},
		`--job-name="hetjo\b pac\kjob" # end`: {"--job-name=hetjob packjob"},
		`--job-name=a\#b`:                     {"--job-name=a#b"},
		`--job-name=a\ b`:                     {"--job-name=a", "b"},
		`--job-name='it\'s'`:                  {"--job-name=it's"},
		`--job-name=a""b`:                     {"--job-name=ab"},
		`:x --job-name=y`:                     nil,
		`--job-name="a`:                       nil,
	} {
		words, err := readDirective(line)
		if (err != nil) != (want == nil) || err == nil && !slices.Equal(words, want) {
			t.Errorf("%s: words %q, error %v; want %q", line, words, err, want)
		}
	}
}

func TestDirectiveIsQuotedWhereItMust(t *testing.T) {
	for word, want := range map[string]string{
		"--nodes=2":            "--nodes=2",
		"--hold":               "--hold",
		"--gres=gpu:a100:4":    "--gres=gpu:a100:4",
		"--comment=":           "--comment=",
		"--comment=a b":        `--comment="a b"`,
		"--comment=it's #1":    `--comment="it's #1"`,
		`--comment=say "hi"`:   `--comment="say \"hi\""`,
		`--comment=back\slash`: `--comment="back\\slash"`,
		"--comment=a=b c=d":    `--comment="a=b c=d"`,
		"--array=1-10%2":       "--array=1-10%2",
		"--constraint=[a|b]&c": `--constraint="[a|b]&c"`,
		"-x n1":                `"-x n1"`,
		"--od d=x":             `"--od d=x"`,
	} {
		if got := quoteDirective(word); got != want {
			t.Errorf("%s: got %s, want %s", word, got, want)
		}
	}
}

// Every permitted word, once quoted, is read as that one word.
func FuzzQuoteDirective(f *testing.F) {
	for _, s := range hostileWords {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, word := range []string{"--comment=" + s, "-" + s} {
			if checkWord(word) != nil {
				if !strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r >= 0x7f }) && len(word) <= maxWord {
					t.Fatalf("%q is printable ASCII and was refused", word)
				}
				continue
			}
			line := quoteDirective(word)
			words, err := readDirective(line)
			if err != nil || len(words) != 1 || words[0] != word || strings.ContainsAny(line, "\n\r\x00") {
				t.Fatalf("%q became the line %q, which Slurm reads as %q (%v)", word, line, words, err)
			}
		}
	})
}

// The installed sbatch reads what quoteDirective writes. It needs no cluster for that: with -v it prints the options that it has read
// before it looks for a controller, and the configuration names one that does not exist.
func TestQuoteDirectiveWithSbatch(t *testing.T) {
	if testing.Short() {
		t.Skip("runs sbatch once per word")
	}
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		t.Skip("no sbatch on the PATH")
	}
	dir := t.TempDir()
	conf := "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n1\nPartitionName=p Nodes=n1\n"
	write(t, filepath.Join(dir, "slurm.conf"), conf)
	for _, word := range hostileWords {
		if word == "" {
			continue
		}
		script := filepath.Join(dir, "script.sh")
		write(t, script, "#!/bin/bash\n#SBATCH "+quoteDirective("--comment="+word)+"\ntrue\n")
		got, found := sbatchComment(t, sbatch, dir, script)
		if !found || got != word {
			t.Errorf("sbatch read %q as %q (an option at all: %t)", word, got, found)
		}
	}
}

// sbatchComment returns the --comment that sbatch has read from the script.
func sbatchComment(t *testing.T, sbatch, dir, script string) (comment string, found bool) {
	t.Helper()
	cmd := exec.Command(sbatch, "-vv", script)
	cmd.Env = []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf"), "PATH=" + os.Getenv("PATH")}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "end of defined options") {
		if name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "sbatch: "), ": "); ok && strings.TrimSpace(name) == "comment" {
			comment, found = value, true
		}
	}
	_ = cmd.Process.Kill() // otherwise it would now look for a controller
	_ = cmd.Wait()         // its error says that it was killed
	return comment, found
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// shellWords passes the quoted words to a real shell, and returns the words that the shell has read.
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

func TestShellsReadRandomQuotedWords(t *testing.T) {
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
		words := strings.Split(s, "\x00") // one shell reads many words
		if got := shellWords(t, shell, words); !slices.Equal(got, words) {
			t.Fatalf("%s read %q as %q", shell, words, got)
		}
	})
}
