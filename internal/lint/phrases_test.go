package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// retiredPhrases are phrases that comments and messages do not use, with what to write instead.
var retiredPhrases = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(?:is|are|was|were) no [a-z]`), `"is not a"`},
	{regexp.MustCompile(`\btells? (?:whether|if)\b`), `"reports whether"`},
	{regexp.MustCompile(`\btold of\b`), `"reported"`},
}

// allowedPhrases are phrases that match one of retiredPhrases, but are good English.
var allowedPhrases = regexp.MustCompile(`\b[Tt]here (?:is|are|was|were) no [a-z]|` +
	`\b(?:is|are|was|were) no (?:longer|more|less|later|earlier|larger|smaller|wider|better|worse|slower|faster)\b`)

// phrasesIn returns the retired phrases in a text, each with what to say instead.
func phrasesIn(text string) []string {
	text = allowedPhrases.ReplaceAllString(strings.Join(strings.Fields(text), " "), "")
	var found []string
	for _, p := range retiredPhrases {
		if phrase := p.pattern.FindString(text); phrase != "" {
			found = append(found, `"`+phrase+`...": say `+p.instead)
		}
	}
	return found
}

// TestPhrases: no comment and no string has a retired phrase.
func TestPhrases(t *testing.T) {
	for _, f := range tree(t) {
		if f.pkg == "internal/lint" && strings.HasSuffix(f.path, "phrases_test.go") {
			continue
		}
		report := func(pos token.Pos, text string) {
			for _, found := range phrasesIn(text) {
				t.Errorf("%s: %s", f.fset.Position(pos), found)
			}
		}
		for _, group := range f.ast.Comments {
			report(group.Pos(), group.Text())
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				report(lit.Pos(), lit.Value)
			}
			return true
		})
	}
}

func TestPhrasesIn(t *testing.T) {
	for text, want := range map[string]int{
		"x is no list": 1, "there is no list": 0, "There are no lists": 0, "it is no longer one": 0,
		"X tells whether": 1, "is\n no list": 1,
		"is told of it": 1, "is not a list": 0,
	} {
		if got := phrasesIn(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
