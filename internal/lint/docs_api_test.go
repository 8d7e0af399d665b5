package lint

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// publicPackages are the packages whose identifiers TestDocsNameExistingIdentifiers looks up.
var publicPackages = []string{
	"mpi", "mpi/store", "trainer/nn", "trainer/optim", "trainer/data", "trainer/ddp", "trainer/blas",
	"checkpoint", "checkpoint/distributed", "checkpoint/safetensors",
}

// TestDocsNameExistingIdentifiers checks that the identifiers that these pages qualify with a package exist. It also checks that the other
// exported identifiers in the column "here" of torch-distributed.md are names, methods or fields of one of the packages.
func TestDocsNameExistingIdentifiers(t *testing.T) {
	exported, members := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		for _, pkg := range publicPackages {
			if f.pkg == pkg {
				addExported(f.ast, exported, members, path.Base(pkg))
			}
		}
	}
	qualified := regexp.MustCompile(`\b(mpi|store|nn|optim|data|ddp|blas|checkpoint|distributed|safetensors)\.([A-Z]\w*)`)
	bare := regexp.MustCompile(`\b[A-Z]\w*[a-z]\w*\b`)
	span := regexp.MustCompile("`([^`]+)`")
	found := 0
	for _, page := range []string{"torch-distributed.md", "go-trainer.md", "algorithms.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range qualified.FindAllStringSubmatch(string(text), -1) {
			found++
			if !exported[name[0]] {
				t.Errorf("docs/%s names %s, which does not exist", page, name[0])
			}
		}
		for line := range strings.Lines(string(text)) {
			cells := strings.Split(line, "|")
			if page != "torch-distributed.md" || len(cells) < 4 {
				continue
			}
			for _, code := range span.FindAllStringSubmatch(cells[2], -1) {
				for _, name := range bare.FindAllString(code[1], -1) {
					found++
					if !members[name] {
						t.Errorf("docs/%s names %s, which does not exist", page, name)
					}
				}
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d names found: the search is wrong", found)
	}
}

// addExported adds the exported identifiers of a file. Top-level ones go to qualified, with the package. Top-level ones, methods and fields
// go to all.
func addExported(f *ast.File, qualified, all map[string]bool, pkg string) {
	add := func(name *ast.Ident, top bool) {
		if name == nil || !name.IsExported() {
			return
		}
		all[name.Name] = true
		if top {
			qualified[pkg+"."+name.Name] = true
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			add(d.Name, d.Recv == nil)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name, true)
					addMembers(s.Type, func(name *ast.Ident) { add(name, false) })
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(name, true)
					}
				}
			}
		}
	}
}

// addMembers calls add with the fields of a struct or the methods of an interface.
func addMembers(expr ast.Expr, add func(*ast.Ident)) {
	var fields *ast.FieldList
	switch e := expr.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			add(name)
		}
	}
}
