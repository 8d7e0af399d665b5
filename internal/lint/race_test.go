package lint

import (
	"go/ast"
	"go/parser"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Packages that start goroutines are tested with the race detector: scripts/test names them.
func TestPackagesWithGoroutinesAreRaced(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "test"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)\nraced=\((.*?)\)`).FindSubmatch(script)
	if list == nil {
		t.Fatal("scripts/test has no list raced=(...)")
	}
	raced := func(pkg string) bool {
		for word := range strings.FieldsSeq(string(list[1])) {
			below, all := strings.CutSuffix(strings.TrimPrefix(word, "./"), "/...")
			if pkg == below || all && strings.HasPrefix(pkg, below+"/") {
				return true
			}
		}
		return false
	}
	reported := map[string]bool{}
	for _, f := range sources(t) {
		if reported[f.pkg] || raced(f.pkg) || strings.HasPrefix(f.pkg, "scripts/") || strings.HasPrefix(f.pkg, "internal/testkit") ||
			strings.HasPrefix(f.pkg, "docs/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if startsGoroutine(n) && !reported[f.pkg] {
				reported[f.pkg] = true
				t.Errorf("%s starts a goroutine, and scripts/test does not test %s with the race detector: add it to raced", f.path, f.pkg)
			}
			return true
		})
	}
}

// startsGoroutine reports whether a node is a go statement, or calls what starts a goroutine: Go of a sync.WaitGroup, or the AfterFunc of
// time or context.
func startsGoroutine(n ast.Node) bool {
	if _, ok := n.(*ast.GoStmt); ok {
		return true
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "Go" || sel.Sel.Name == "AfterFunc")
}

func TestStartsGoroutine(t *testing.T) {
	for expr, want := range map[string]bool{
		"func() { go f() }": true, "func() { tasks.Go(f) }": true, "time.AfterFunc(d, f)": true, "s.tasks.Go(f)": true,
		"context.AfterFunc(ctx, f)()": true, "f()": false, "Go(f)": false, "x.Go": false,
	} {
		parsed, err := parser.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		ast.Inspect(parsed, func(n ast.Node) bool { found = found || startsGoroutine(n); return true })
		if found != want {
			t.Errorf("%s: %v, want %v", expr, found, want)
		}
	}
}

// A test that has fewer cases under the race detector says that it runs without it, too, as scripts/test looks for that.
func TestThinnedTestsRunInFull(t *testing.T) {
	bodies := map[string]map[string]*ast.FuncDecl{} // of tests, by package
	lines := map[*ast.FuncDecl]string{}             // what the comments on a function's first line say
	for _, f := range tree(t) {
		if !f.isTest {
			continue
		}
		if bodies[f.pkg] == nil {
			bodies[f.pkg] = map[string]*ast.FuncDecl{}
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			bodies[f.pkg][fn.Name.Name] = fn
			for _, comment := range f.ast.Comments {
				if f.fset.Position(comment.Pos()).Line == f.fset.Position(fn.Pos()).Line {
					lines[fn] += comment.Text()
				}
			}
		}
	}
	found := 0
	for pkg, functions := range bodies {
		for name, fn := range functions {
			if !strings.HasPrefix(name, "Test") || fn.Recv != nil || !thins(fn, functions, map[*ast.FuncDecl]bool{}) {
				continue
			}
			found++
			if !strings.Contains(lines[fn], "without the race detector") {
				t.Errorf("%s: %s has fewer cases under the race detector (testkit/thin): say \"without the race detector\", or \"also without\", "+
					"where it begins", pkg, name)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d thinned tests found: the search is wrong", found)
	}
}

// thins reports whether a function of a package's tests comes to a call of testkit/thin. Methods count by their names.
func thins(fn *ast.FuncDecl, functions map[string]*ast.FuncDecl, seen map[*ast.FuncDecl]bool) bool {
	if fn == nil || fn.Body == nil || seen[fn] {
		return false
	}
	seen[fn] = true
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !found {
			found = id.Name == "thin" || thins(functions[id.Name], functions, seen)
		}
		return !found
	})
	return found
}
