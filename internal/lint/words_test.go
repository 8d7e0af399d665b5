package lint

import (
	"errors"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// american replaces British spellings, in lower case, by those of Go's standard library. It has words that this tree has used or is likely
// to use.
var american = strings.NewReplacer(
	"behaviour", "behavior", "colour", "color", "favour", "favor", "flavour", "flavor", "honour", "honor", "neighbour", "neighbor",
	"initialis", "initializ", "maximise", "maximize", "minimise", "minimize", "normalis", "normaliz", "optimisation", "optimization",
	"optimise", "optimize", "optimising", "optimizing", "organis", "organiz", "recognis", "recogniz", "serialis", "serializ",
	"summaris", "summariz", "synchronis", "synchroniz", "utilis", "utiliz",
	"cancelled", "canceled", "canceller", "canceler", "cancelling", "canceling", "dialled", "dialed", "dialler", "dialer",
	"dialling", "dialing", "journalled", "journaled", "journalling", "journaling", "labelled", "labeled", "labelling", "labeling",
	"marshalled", "marshaled", "marshalling", "marshaling", "modelled", "modeled", "modelling", "modeling",
	"signalled", "signaled", "signalling", "signaling",
	"acknowledgement", "acknowledgment", "defence", "defense", "grey", "gray", "judgement", "judgment", "learnt", "learned",
	"licence", "license", "queueing", "queuing", "spelt", "spelled",
)

var (
	// quotes are the parts of a line that are not prose: code, quotations, targets of links, and paths.
	quotes = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|\\]\\([^)]*\\)|[\\w.-]*/[\\w./-]*")
	// plainWord is a word of prose, not a name such as neighbour_exchange, TestCancelled or CANCELLED.
	plainWord = regexp.MustCompile(`\b[A-Za-z][a-z]+\b`)
)

// TestSpellingIsAmerican checks the comments of Go files and the prose of Markdown files. A comment may have a word that is an identifier
// in its file. Messages are not checked.
func TestSpellingIsAmerican(t *testing.T) {
	for _, f := range tree(t) {
		names := map[string]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				names[name.Name] = true
			}
			return true
		})
		for _, group := range f.ast.Comments {
			for _, comment := range group.List {
				for _, word := range britishWords(comment.Text) {
					if !names[word] {
						t.Errorf("%s: write %q for %q", f.fset.Position(comment.Pos()), toAmerican(word), word)
					}
				}
			}
		}
	}
	pages := 0
	for _, path := range listed(t) {
		if !strings.HasSuffix(path, ".md") || strings.Contains(path, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", "..", path))
		if errors.Is(err, fs.ErrNotExist) { // git also lists files whose deletion is not yet committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		pages++
		inCode := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inCode = !inCode
			}
			if inCode {
				continue
			}
			for _, word := range britishWords(line) {
				t.Errorf("%s:%d: write %q for %q", path, i+1, toAmerican(word), word)
			}
		}
	}
	if pages < 40 {
		t.Errorf("only %d pages found: the list of files is wrong", pages)
	}
}

func TestBritishWords(t *testing.T) {
	for text, want := range map[string]string{
		"The behaviour of neighbours.": "behaviour neighbours", "Unlabelled, cancelled; signalling": "Unlabelled cancelled signalling",
		"a job that was canceled": "", "CANCELLED, TestCancelledJob, cancelled_at": "", "`cancelled` or \"cancelled\"": "",
		"[points](synchronisation.md) in docs/synchronisation.md": "", "the caller is optimistic": "", "optimised": "optimised",
	} {
		if got := strings.Join(britishWords(text), " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for word, want := range map[string]string{
		"Initialisation": "initialization", "dialler": "dialer", "judgements": "judgments", "hour": "hour",
	} {
		if got := toAmerican(word); got != want {
			t.Errorf("toAmerican(%q) = %q, want %q", word, got, want)
		}
	}
}

// britishWords returns the words of a line's prose that have a British spelling.
func britishWords(line string) (words []string) {
	if toAmerican(line) == strings.ToLower(line) {
		return nil
	}
	for _, word := range plainWord.FindAllString(quotes.ReplaceAllString(line, " "), -1) {
		if toAmerican(word) != strings.ToLower(word) {
			words = append(words, word)
		}
	}
	return words
}

// toAmerican returns text in lower case and in American spelling.
func toAmerican(text string) string {
	return american.Replace(strings.ToLower(text))
}
