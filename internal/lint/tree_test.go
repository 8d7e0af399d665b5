package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "ddpbatch"

// file is one parsed Go file.
type file struct {
	pkg    string // the path of its package inside the module, such as "mpi/store"
	path   string
	isTest bool
	lines  int
	ast    *ast.File
	fset   *token.FileSet
}

func (f file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// sources returns the Go files of the module, without tests.
func sources(t *testing.T) []file {
	t.Helper()
	return slices.DeleteFunc(tree(t), func(f file) bool { return f.isTest })
}

// tree returns every Go file of the module.
func tree(t *testing.T) []file {
	t.Helper()
	files, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files found: the walk is wrong", len(files))
	}
	return slices.Clone(files)
}

var parseTree = sync.OnceValues(func() ([]file, error) {
	root := filepath.Join("..", "..")
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "runs") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		files = append(files, file{
			pkg: filepath.ToSlash(dir), path: path, isTest: strings.HasSuffix(path, "_test.go"),
			lines: strings.Count(string(text), "\n"), ast: parsed, fset: fset,
		})
		return nil
	})
	return files, err
})

// listed returns the paths of the module's files, relative to its root: those that git tracks, because a working folder has other files as
// well. If git tracks no files here, they are all files outside runs and hidden folders.
func listed(t *testing.T) (paths []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err == nil && len(out) > 0 {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "runs"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		path, err = filepath.Rel(root, path)
		paths = append(paths, filepath.ToSlash(path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestEveryPackageHasDoc(t *testing.T) {
	documented := map[string]bool{}
	all := map[string]bool{}
	for _, f := range sources(t) {
		all[f.pkg] = true
		if f.ast.Doc != nil && (filepath.Base(f.path) == "doc.go" || f.ast.Name.Name == "main") {
			documented[f.pkg] = true
		}
	}
	for pkg := range all {
		if !documented[pkg] {
			t.Errorf("%s has no doc.go with a package comment", pkg)
		}
	}
}

func TestFilesStaySmall(t *testing.T) {
	const most = 500
	for _, f := range sources(t) {
		if f.lines > most {
			t.Errorf("%s has %d lines, more than %d: one subject per file", f.path, f.lines, most)
		}
	}
}

// TestSizesOfFilesAreLogged prints the sizes of the production files, and how many are so small that they may belong in other files.
func TestSizesOfFilesAreLogged(t *testing.T) {
	const least = 40
	var lines []int
	total, small := 0, 0
	for _, f := range sources(t) {
		lines, total = append(lines, f.lines), total+f.lines
		if f.lines < least && filepath.Base(f.path) != "doc.go" {
			small++
		}
	}
	slices.Sort(lines)
	t.Logf("%d production files of %d lines, median %d; %d have fewer than %d lines, doc.go left out",
		len(lines), total, lines[len(lines)/2], small, least)
}

// TestLibrariesKeepTheirHandsOff: no library ends the process, prints, or reads the environment, unless its caller asked it to.
func TestLibrariesKeepTheirHandsOff(t *testing.T) {
	forbidden := map[string]string{
		"os.Exit": "return an error", "log.Fatal": "return an error", "log.Fatalf": "return an error",
		"log.Print": "take a *slog.Logger", "log.Println": "take a *slog.Logger", "log.Printf": "take a *slog.Logger",
		"flag.Parse": "take a configuration", "os.Args": "take a configuration",
		"fmt.Print": "take an io.Writer", "fmt.Println": "take an io.Writer", "fmt.Printf": "take an io.Writer",
		"os.Stdout": "take an io.Writer", "os.Stderr": "take an io.Writer",
		"os.Getenv": "take a lookup function", "os.LookupEnv": "take a lookup function", "os.Environ": "take a list",
		"os.ExpandEnv": "take a lookup function", "syscall.Getenv": "take a lookup function",
		"slog.Info": "take a *slog.Logger", "slog.Warn": "take a *slog.Logger", "slog.Error": "take a *slog.Logger",
		"slog.Default":   "take a *slog.Logger",
		"os.UserHomeDir": "take a folder", "os.UserCacheDir": "take a folder", "os.UserConfigDir": "take a folder",
		"os.Getwd": "take a folder", "os.TempDir": "take a folder", `os.MkdirTemp("")`: "take a folder",
		`os.CreateTemp("")`: "take a folder",
		"exec.LookPath":     "take a path",
	}
	exceptions := map[string]bool{ // docs/architecture.md lists them
		"internal/jobfile os.UserHomeDir": true, "mpi/launch/supervise os.TempDir": true,
		`slurm/sim os.MkdirTemp("")`: true, "slurm/sim exec.LookPath": true,
	}
	used := map[string]bool{}
	for _, f := range sources(t) {
		if f.ast.Name.Name == "main" || strings.HasPrefix(f.pkg, "internal/testkit") || strings.HasPrefix(f.pkg, "scripts/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			what := usedOf(n)
			instead, bad := forbidden[what]
			switch exception := f.pkg + " " + what; {
			case !bad:
			case exceptions[exception]:
				used[exception] = true
			default:
				t.Errorf("%s: a library uses %s; %s", f.fset.Position(n.Pos()), what, instead)
			}
			return true
		})
	}
	if len(used) != len(exceptions) {
		t.Errorf("exceptions are made for %v, and only %v are used", exceptions, used)
	}
}

// usedOf returns what a node uses of another package: "os.Args", or `os.MkdirTemp("")` if the call uses the folder of temporary files.
func usedOf(n ast.Node) string {
	first := ""
	if call, ok := n.(*ast.CallExpr); ok {
		if len(call.Args) > 0 {
			if text, ok := call.Args[0].(*ast.BasicLit); ok && text.Value == `""` {
				first = `("")`
			}
		}
		if n = call.Fun; first == "" {
			return "" // the walk visits the selector itself
		}
	}
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Obj == nil {
		return pkg.Name + "." + sel.Sel.Name + first
	}
	return ""
}
