package blame

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// No error text of package checkpoint counts as the words of a rank that lost a peer. A faulty checkpoint is a failure of the rank itself
// or of the disk, and otherwise the network would be blamed for it.
func TestErrorsOfCheckpointsAreNoVictims(t *testing.T) {
	texts := 0
	must(t, filepath.WalkDir("../../../checkpoint", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				must(t, err)
				texts++
				if natureOf([]string{text}) == peer {
					t.Errorf("%s: %q counts as the words of a rank that lost a peer", path, text)
				}
			}
			return true
		})
		return nil
	}))
	if texts < 500 {
		t.Errorf("%d texts were found: that is not package checkpoint", texts)
	}
}

// The messages of ddpbatch's own libraries about a lost peer are known.
func TestOwnWordsOfALostPeerAreKnown(t *testing.T) {
	for _, text := range []string{
		"ddpbatch: the connection to the store at 10.0.0.1:4711 is lost: EOF", // mpi/store
		"panic: rank 3: connection lost",
	} {
		if d := (Death{Exit: 1, Tail: []string{text}}); !Victim(d) {
			t.Errorf("%q does not count as the words of a rank that lost a peer", text)
		}
	}
}
