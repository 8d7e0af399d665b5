package translate

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// expanded returns the words of the arguments of a script's last command, if all of them are known.
func expanded(t testing.TB, script string) (constants []string, known bool) {
	t.Helper()
	list, err := parse(script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	tr := newTranslation(script, newRequest(nil, 0))
	tr.statements(list)
	last := tr.items[len(tr.items)-1]
	for _, f := range last.words {
		text, fixed := f.constant()
		if !fixed {
			return nil, false
		}
		constants = append(constants, text)
	}
	return constants, len(constants) > 0
}

// bashWords returns the arguments of the command "prog" as bash expands them. If the command occurs twice, the text END separates the two.
func bashWords(t interface {
	Fatalf(format string, args ...any)
}, script string) []string {
	out, err := exec.Command("bash", "-c", "prog() { printf '%s\\0' \"${began+END}\" prog \"$@\"; began=; }\n"+script).Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")[1:]
}

func needsBash(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash on the PATH")
	}
}

func TestWordsAreWhatBashMakesOfThem(t *testing.T) {
	needsBash(t)
	for _, script := range []string{
		`prog a "b c" 'd  e' f\ g h"i"'j'`,
		`prog "" '' a`,
		`A=1; prog $A "$A" ${A} x${A}y "$A$A"`,
		`A="a b  c"; prog $A "$A" x$A`,
		`A=" a "; prog $A x${A}y "$A"`,
		`A=; prog $A "$A" x$A`,
		`A="x\"y\$z\\"; prog "$A" '\' "\a" \a`,
		`A=1; B=$A$A; C="$B $B"; prog $C "$C"`,
		`A=(a "b c" d); prog "${A[@]}" ${A[@]} x`,
		`A=(); prog "${A[@]}" x ${A[*]}`,
		`A=(1 2); B=(--x "${A[@]}" y); prog "${B[@]}"`,
		`A=3; B=4; prog $((A * B)) $(($A+$B)) $(( (A + B) / 2 )) $((B % A)) $((A - 10))`,
		`A=; prog ${A:-x} "${A:-y z}" ${A:-y z} "${A-y}"`,
		`A=; prog x${A:-b}x "x${A-b}x"`,
		`A=v; prog ${A:-b} "${A-c}"`,
		"prog a \\\n  b \\\n  c",
		`export A=x B="y z"; prog $A "$B"`,
		`A=1 && B=2; prog $A$B`,
		`A=[0,1]; prog $A x=[1] {a} {} a{b`,
		`readonly A=7; declare -x B=8; prog $A $B`,
		"A='line\nbreak'; prog \"$A\" $A",
	} {
		got, known := expanded(t, script)
		if want := bashWords(t, script); !known || !slices.Equal(got, want) {
			t.Errorf("%s: %q (%v), bash says %q", script, got, known, want)
		}
	}
}

// Words whose value only a shell can determine are never taken for text.
func TestWordsOfTheJobAloneStayTheShells(t *testing.T) {
	for _, script := range []string{
		`prog $X`, `prog "$(date)"`, "prog `date`", `prog *.py`, `prog a?`, `prog {a,b}`, `prog {1..3}`,
		`prog ~/x`, `prog ~ann/x`, `prog $1`, `prog "$@"`,
		`X=$(date); prog $X`, `X=1; X=$X$(date); prog $X`, `read X; prog $X`, `X=1; read X; prog $X`, `X=1; if a; then X=2; fi; prog $X`,
		`A=abc; prog ${A%c}`, `A=abc; prog ${#A}`, `A=abc; prog ${A:1}`, `A=abc; prog ${A/b/x}`, `A=(a b); prog ${A[0]}`, `A=x; prog ${!A}`,
		`prog $'a\nb'`, `X=1; X+=2; prog $X`, `prog $((RANDOM))`, `prog <(date)`, `prog ${A:-x}`,
		`A=(a b); prog "${A[*]}"`, `A=$X; prog ${A:-b}`, `X=1; unset X; prog $X`, `for X in 1; do :; done; prog $X`,
		`WORLD_SIZE=4; prog $WORLD_SIZE`, `prog $((1 << 70))`, `prog $((1 / 0))`,
	} {
		if got, known := expanded(t, script); known {
			t.Errorf("%s: %q", script, got)
		}
	}
}

// Words that are written as shell text are read back as the same words.
func TestShellTextIsReadBack(t *testing.T) {
	needsBash(t)
	part := rapid.SampledFrom([]string{"a", `"b c"`, "'d  e'", `\$x`, `"\"q\""`, `'$y'`, `"${A}"`, "$A",
		"${A}z", `"$B"`, "$B", `''`, `$((1+2))`, `"x$B"`})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "word"), "")
		}), 1, 4).Draw(t, "words")
		setup := "A=1; B='p  q'; "
		script := setup + "prog " + strings.Join(list, " ")
		parsed, err := parse(script)
		if err != nil {
			t.Fatal(err)
		}
		tr := newTranslation(script, newRequest(nil, 0))
		tr.statements(parsed)
		var words []string
		for _, f := range tr.items[len(tr.items)-1].words {
			words = append(words, shellText(f))
		}
		both := bashWords(t, script+"; unset A B; "+strings.Join(words, " "))
		at := slices.Index(both, "END")
		if want, got := both[:at], both[at+1:]; !slices.Equal(got, want) {
			t.Fatalf("%s became %s: %q, want %q", script, strings.Join(words, " "), got, want)
		}
	})
}
