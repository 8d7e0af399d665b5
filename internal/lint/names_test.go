package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retired maps words, or several words with dashes between them, that must no longer occur in names of identifiers or files, to the words
// to use instead (docs/glossary.md). Words in prose, messages, wire formats and files on disk are not names in this sense, and neither are
// Slurm's own words.
var retired = words(map[string]string{
	"meeting meetings":               "rendezvous",
	"approach approaches approached": "dial",
	"guest guests":                   "participant",
	"seat seats seated":              "assignment",
	"roster rosters":                 "membership",
	"lobby":                          "pending connections",
	"decline declines declined":      "reject",
	"talk talks talked":              "control channel",
	"hear hears heard hearing":       "receive",
	"tell tells told telling":        "report, publish or notify",
	"settle settles settled":         "finalize",
	"conclude concludes concluded":   "complete",
	"strike strikes struck":          "inject (a fault)",
	"keeper keepers":                 "reaper",
	"tray trays":                     "gather buffer",
	"prey":                           "target",
	"torch-door torchdoor":           "protocol multiplexer",
	"farewell farewells":             "time-out, or margin",
})

// retiredBelow are words that are retired in only one part of the tree.
var retiredBelow = map[string]map[string]string{
	"internal": words(map[string]string{
		"fingerprint fingerprints": "digest: a fingerprint is a call's",
		"scene scenes":             "injector",
	}),
	"checkpoint": words(map[string]string{
		"drain drains drained drainer": "flush, or upload",
		"remains":                      "recovered",
		"stranded":                     "uncommitted",
	}),
	"trainer": words(map[string]string{
		"hurried hurry haste hasty": "what the loop does then",
		"enough":                    "what is reached",
		"beginner":                  "what begins",
	}),
}

// onlyIn are words with one meaning, which only these packages and those below them may use in names.
var onlyIn = map[string][]string{
	// the time from a job's warning to its end; what rank 0 does has a different word in each place
	"lead": {"internal/attempt", "internal/jobfile", "internal/rundir", "mpi/launch/recovery", "mpi/launch/supervise", "slurm"},
}

// oneType are bare names of types that at most one package may declare. In a second package, the name must say what the type is of.
var oneType = []string{"place", "plan", "entry", "status", "report", "part", "set", "step", "side", "row", "turn"}

// ownWords are names of types that are words of another program, such as Slurm's step.
var ownWords = map[string]bool{"slurm/sim.Step": true}

// words maps each word of a key to the value of the key.
func words(lists map[string]string) map[string]string {
	all := map[string]string{}
	for list, instead := range lists {
		for word := range strings.FieldsSeq(list) {
			all[word] = instead
		}
	}
	return all
}

// declared is a name that a file declares, or the file's own name.
type declared struct {
	pkg, name, where string
	isType, isTest   bool
}

func TestRetiredWordsAreInNoName(t *testing.T) {
	for _, d := range append(declarations(t), paths(t)...) {
		for _, wrong := range misnamed(d) {
			t.Errorf("%s: %s", d.where, wrong)
		}
	}
}

// misnamed returns what is wrong with a name.
func misnamed(d declared) (wrong []string) {
	below, _, _ := strings.Cut(d.pkg, "/")
	words := "-" + strings.Join(wordsOf(d.name), "-") + "-"
	for _, list := range []map[string]string{retired, retiredBelow[below]} {
		for word, instead := range list {
			if strings.Contains(words, "-"+word+"-") {
				wrong = append(wrong, fmt.Sprintf("%s holds the word %q; say %s", d.name, word, instead))
			}
		}
	}
	for word, packages := range onlyIn {
		isBelow := func(pkg string) bool { return d.pkg == pkg || strings.HasPrefix(d.pkg, pkg+"/") }
		if !d.isTest && strings.Contains(words, "-"+word+"-") && !slices.ContainsFunc(packages, isBelow) {
			wrong = append(wrong,
				fmt.Sprintf("%s holds the word %q, which means one thing, in %s", d.name, word, strings.Join(packages, ", ")))
		}
	}
	return wrong
}

func TestMisnamed(t *testing.T) {
	for _, test := range []struct {
		pkg, name string
		wrong     bool
	}{
		{"mpi/store", "torchDoor", true}, {"mpi/store", "torchdoor", true}, {"mpi/store", "torchMux", false},
		{"docs/adr", "0003-meeting-on-a-seeded-port.md", true}, {"docs/adr", "0003-rendezvous-on-a-seeded-port.md", false},
		{"checkpoint/distributed", "drainTier", true}, {"trainer/ddp", "drain", false},
		{"slurm/sim", "Lead", false}, {"mpi/launch/recovery", "leadAfter", false},
		{"mpi/launch/rendezvous", "lead", true}, {"slurmlike", "lead", true},
	} {
		if got := misnamed(declared{pkg: test.pkg, name: test.name}); (len(got) > 0) != test.wrong {
			t.Errorf("%s in %s: %q, want a fault: %v", test.name, test.pkg, got, test.wrong)
		}
	}
}

// paths returns the names of all files that are not Go files, and of all folders.
func paths(t *testing.T) (all []declared) {
	t.Helper()
	root := filepath.Join("..", "..")
	seen := map[string]bool{".": true}
	for _, name := range listed(t) {
		for ; !seen[name]; name = path.Dir(name) {
			seen[name] = true
			if !strings.HasSuffix(name, ".go") {
				isTest := strings.Contains(name, "testdata")
				all = append(all, declared{pkg: path.Dir(name), name: path.Base(name), where: filepath.Join(root, name), isTest: isTest})
			}
		}
	}
	if len(all) < 500 {
		t.Fatalf("%d files and folders: the list is wrong", len(all))
	}
	return all
}

func TestBareNamesHaveOneMeaning(t *testing.T) {
	packages := map[string][]string{}
	for _, d := range declarations(t) {
		name := strings.ToLower(d.name)
		ofProgram := d.isType && !d.isTest && !strings.HasPrefix(d.pkg, "scripts/") && !ownWords[d.pkg+"."+d.name]
		if ofProgram && slices.Contains(oneType, name) && !slices.Contains(packages[name], d.pkg) {
			packages[name] = append(packages[name], d.pkg)
		}
	}
	for name, have := range packages {
		if len(have) > 1 {
			t.Errorf("%s is the name of a type in %s: say of what it is in all of them but one", name, strings.Join(have, ", "))
		}
	}
}

// declarations returns all names that the module's Go files declare, including those of tests, and the names of the files.
func declarations(t *testing.T) []declared {
	t.Helper()
	var all []declared
	for _, file := range tree(t) {
		of := declared{pkg: file.pkg, isTest: file.isTest}
		of.name, of.where = strings.TrimSuffix(filepath.Base(file.path), ".go"), file.path
		all = append(all, of)
		each(file.ast, func(name *ast.Ident, isType bool) {
			d := of
			d.name, d.where, d.isType = name.Name, file.fset.Position(name.Pos()).String(), isType
			all = append(all, d)
		})
	}
	return all
}

// each calls f for each name that a file declares: package members, methods, fields, parameters, variables, and renamed imports.
func each(file *ast.File, f func(name *ast.Ident, isType bool)) {
	list := func(names []*ast.Ident) {
		for _, name := range names {
			f(name, false)
		}
	}
	define := func(exprs ...ast.Expr) {
		for _, expr := range exprs {
			if name, ok := expr.(*ast.Ident); ok {
				f(name, false)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f(n.Name, false)
		case *ast.TypeSpec:
			f(n.Name, true)
		case *ast.ValueSpec:
			list(n.Names)
		case *ast.Field:
			list(n.Names)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				define(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				define(n.Key, n.Value)
			}
		case *ast.ImportSpec:
			if n.Name != nil {
				f(n.Name, false)
			}
		case *ast.LabeledStmt:
			f(n.Label, false)
		}
		return true
	})
}

// wordsOf returns the words of a name in lower case: torch, store, port for torchStorePort, torch_store_port and torch-store.port.
func wordsOf(name string) []string {
	var split strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0
		if begins && unicode.IsUpper(runes[i-1]) { // inside HTTP, or at the S of HTTPServer
			begins = i+1 < len(runes) && unicode.IsLower(runes[i+1])
		}
		if begins {
			split.WriteByte('_')
		}
		split.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(split.String(), func(r rune) bool { return strings.ContainsRune("_-. ", r) })
}

func TestWordsOf(t *testing.T) {
	for name, want := range map[string]string{
		"torchStorePort": "torch store port", "torch_store_port": "torch store port", "TestScriptTellsOfTERM": "test script tells of term",
		"HTTPServer": "http server", "x": "x", "readCPUs": "read cp us", "told": "told", "TestFactsOf25_11": "test facts of25 11", "_": "",
		"0003-a-port.md": "0003 a port md",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
