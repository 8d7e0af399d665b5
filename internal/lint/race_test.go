package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Packages that start goroutines are tested with the race detector, because scripts/test names them.
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

// startsGoroutine reports whether a node is a go statement, or a call that starts a goroutine: Go of a sync.WaitGroup, or AfterFunc of time
// or context.
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

// A test that has fewer cases under the race detector says in a comment that it also runs without it. scripts/test looks for that comment.
func TestThinnedTestsRunInFull(t *testing.T) {
	packages := map[string]testsCode{}
	for _, f := range tree(t) {
		if f.isTest {
			if packages[f.pkg] == nil {
				packages[f.pkg] = testsCode{}
			}
			packages[f.pkg].add(f)
		}
	}
	found := 0
	for pkg, functions := range packages {
		for name, list := range functions {
			for _, fn := range list {
				if !strings.HasPrefix(name, "Test") || fn.decl.Recv != nil || !functions.thins(fn, map[*ast.FuncDecl]bool{}) {
					continue
				}
				found++
				if !strings.Contains(fn.said, "without the race detector") {
					t.Errorf("%s: %s has fewer cases under the race detector (testkit/thin): say \"without the race detector\", or "+
						"\"also without\", where it begins", pkg, name)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d thinned tests found: the search is wrong", found)
	}
}

// testsCode are the functions and methods of a package's tests, by name. Methods of several types may have the same name.
type testsCode map[string][]testCode

type testCode struct {
	decl *ast.FuncDecl
	thin string // the name under which its file imports testkit/thin, or ""
	said string // the comments on its first line
}

func (all testsCode) add(f file) {
	thin := ""
	for _, spec := range f.ast.Imports {
		if spec.Path.Value != strconv.Quote(module+"/internal/testkit/thin") {
			continue
		}
		thin = "thin"
		if spec.Name != nil {
			thin = spec.Name.Name
		}
	}
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		said := ""
		for _, comment := range f.ast.Comments {
			if f.fset.Position(comment.Pos()).Line == f.fset.Position(fn.Pos()).Line {
				said += comment.Text()
			}
		}
		all[fn.Name.Name] = append(all[fn.Name.Name], testCode{decl: fn, thin: thin, said: said})
	}
}

// thins reports whether a function uses testkit/thin, directly or through others. A name stands for all functions and methods that have it.
func (all testsCode) thins(fn testCode, seen map[*ast.FuncDecl]bool) bool {
	if fn.decl.Body == nil || seen[fn.decl] {
		return false
	}
	seen[fn.decl] = true
	found := false
	ast.Inspect(fn.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			found = found || ok && fn.thin != "" && pkg.Name == fn.thin
		case *ast.Ident:
			found = found || slices.ContainsFunc(all[n.Name], func(called testCode) bool { return all.thins(called, seen) })
		}
		return !found
	})
	return found
}

func TestThins(t *testing.T) {
	const imported = `import short "ddpbatch/internal/testkit/thin"; `
	functions := testsCode{}
	for _, text := range []string{
		imported + `type a struct{}; func (a) run() { short.Step(2) }; func TestAliased() { short.Step(2) }`,
		`type b struct{}; func (b) run() {}; func TestCalls() { b{}.run() }; func TestOwn() { thin := b{}; thin.x() }; func TestNone() {}`,
	} {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, "", "package p; "+text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		functions.add(file{ast: parsed, fset: fset})
	}
	for name, want := range map[string]bool{"TestAliased": true, "TestCalls": true, "TestOwn": false, "TestNone": false} {
		if got := functions.thins(functions[name][0], map[*ast.FuncDecl]bool{}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
