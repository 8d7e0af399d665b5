package slurm

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// readDirective reads what stands after "#SBATCH " into words, by the grammar of
// launching.md §4.3, which was read in Slurm's opt.c. It is the oracle for the quoter, and
// TestReadDirective holds it against answers of a real sbatch. (In one point the paper is
// wrong, for 22.05 at least: outside quotes a blank ends the word even after a backslash.)
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

// What sbatch -vv of Slurm 22.05.8 made of each line.
func TestReadDirective(t *testing.T) {
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

func TestQuoteDirective(t *testing.T) {
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

// Every word that may be asked for comes back as that one word.
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
