package lint

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport lists the imports inside the module that are allowed (docs/architecture.md). A package that is not listed imports only
// internal/...
var mayImport = map[string][]string{
	"cmd/ddpbatch":            {"*"},
	"internal/jobfile":        {"slurm", "mpi", "mpi/launch", "mpi/launch/recovery", "trainer", "checkpoint"},
	"internal/translate":      {"slurm"},
	"internal/runview":        {"slurm", "checkpoint", "mpi/launch/recovery", "mpi/launch/blame", "mpi/launch/output"},
	"internal/doctor":         {"slurm", "mpi", "mpi/launch/device", "mpi/launch/health", "mpi/launch/reach", "mpi/transport/ucx"},
	"internal/goodput":        {"mpi/launch/recovery"},
	"internal/report":         {"checkpoint", "mpi/launch/recovery"},
	"internal/live":           {"slurm", "mpi/launch/blame", "mpi/launch/output", "mpi/launch/watch"},
	"internal/collbench":      {"mpi", "mpi/store", "mpi/launch"},
	"internal/torchrun":       {"mpi/launch", "mpi/launch/output", "mpi/launch/reach"},
	"internal/submission":     {"slurm", "mpi/launch/recovery"},
	"internal/attempt":        {"slurm", "mpi/launch/recovery"},
	"internal/rehearse":       {"slurm/sim", "checkpoint", "checkpoint/inspect"},
	"internal/resume":         {"slurm", "checkpoint", "trainer"},
	"internal/builtin":        {"slurm", "mpi", "mpi/launch/watch", "trainer", "checkpoint", "checkpoint/inspect"},
	"internal/simulate":       {"slurm", "slurm/sim", "mpi/launch", "mpi/launch/recovery"},
	"internal/placement":      {"slurm", "slurm/pmi2", "mpi/launch"},
	"internal/testkit/golden": {"checkpoint/npy"},
	"slurm":                   {},
	"slurm/sim":               {"slurm"},
	"templates":               {},
	"checkpoint":              {},
	"checkpoint/distributed":  {"checkpoint"},
	"checkpoint/safetensors":  {"checkpoint"},
	"checkpoint/npy":          {"checkpoint"},
	"checkpoint/inspect":      {"checkpoint", "checkpoint/safetensors", "checkpoint/npy"},
	"mpi":                     {"mpi/store", "mpi/transport"},
	"mpi/store":               {},
	"mpi/transport":           {"mpi/store", "mpi/transport/ucx"},
	"mpi/transport/ucx":       {},
	"mpi/internal/engine":     {"mpi/transport"},
	"mpi/launch": {"mpi/launch/rendezvous", "mpi/launch/supervise", "mpi/launch/recovery", "mpi/launch/output",
		"mpi/launch/device", "mpi/launch/reach"},
	"mpi/launch/rendezvous": {"mpi/store", "mpi/launch/recovery", "mpi/launch/reach"},
	"mpi/launch/supervise": {"mpi/store", "mpi/launch/rendezvous", "mpi/launch/recovery", "mpi/launch/output",
		"mpi/launch/blame", "mpi/launch/device", "mpi/launch/health", "mpi/launch/watch", "mpi/launch/stack"},
	"mpi/launch/output":   {},
	"mpi/launch/blame":    {"mpi/launch/stack"},
	"mpi/launch/recovery": {},
	"mpi/launch/device":   {},
	"mpi/launch/health":   {},
	"mpi/launch/watch":    {"mpi/launch/stack"},
	"mpi/launch/stack":    {},
	"mpi/launch/reach":    {"mpi/store"},
	"slurm/pmi2":          {},
	"docs/examples/custom": {"mpi", "checkpoint", "checkpoint/safetensors", "trainer/nn", "trainer/optim", "trainer/data",
		"trainer/ddp", "trainer/blas"},
	"trainer": {"trainer/ddp", "trainer/nn", "trainer/optim", "trainer/data", "trainer/blas", "mpi", "checkpoint",
		"checkpoint/distributed", "checkpoint/safetensors"},
	"trainer/ddp":                      {"mpi", "trainer/nn"},
	"trainer/nn":                       {"trainer/blas"},
	"trainer/blas":                     {},
	"trainer/optim":                    {"trainer/nn"},
	"trainer/data":                     {},
	"scripts/bench/checkpoint":         {"checkpoint", "checkpoint/distributed"},
	"scripts/bench/start/rank":         {"mpi"},
	"scripts/bench/train":              {"checkpoint/npy"},
	"scripts/bench/internal/processes": {"slurm"},
}

// internalFor lists which packages may import an internal one. All packages may import an internal package that is not listed.
var internalFor = map[string][]string{
	"internal/secure": {"mpi/store"},
	"internal/auth": {"internal/attempt", "internal/secure", "mpi", "mpi/store", "mpi/transport", "mpi/launch/rendezvous",
		"mpi/launch/supervise", "internal/collbench", "cmd/ddpbatch"},
	"internal/rundir": {"internal/defaults", "mpi/launch", "mpi/launch/rendezvous", "mpi/launch/supervise", "mpi/launch/blame",
		"mpi/launch/recovery", "checkpoint/inspect", "internal/jobfile", "internal/snapshot", "internal/submission", "internal/attempt",
		"internal/simulate", "internal/rehearse", "internal/builtin", "internal/resume", "internal/cancel", "internal/clean",
		"internal/live", "internal/runindex", "internal/runview", "internal/goodput", "internal/exposition",
		"internal/testkit/fakeslurm", "internal/report", "cmd/ddpbatch"},
	"internal/jobfile": {"internal/defaults", "internal/attempt", "internal/simulate", "internal/rehearse", "internal/builtin",
		"internal/resume", "internal/runview", "internal/testkit/fakeslurm", "internal/report", "cmd/ddpbatch"},
	"internal/defaults":  {"cmd/ddpbatch"},
	"internal/torchrun":  {"internal/placement", "internal/translate", "internal/jobfile", "cmd/ddpbatch"},
	"internal/translate": {"cmd/ddpbatch"},
	"internal/placement": {"internal/builtin", "cmd/ddpbatch"},
	"internal/builtin":   {"cmd/ddpbatch"},
	"internal/resume":    {"cmd/ddpbatch"},
	"internal/cancel":    {"cmd/ddpbatch"},
	"internal/clean":     {"cmd/ddpbatch"},
	"internal/submission": {"internal/attempt", "internal/simulate", "internal/builtin", "internal/runview", "internal/resume",
		"internal/cancel", "internal/clean", "cmd/ddpbatch"},
	"internal/attempt":    {"internal/simulate", "cmd/ddpbatch"},
	"internal/simulate":   {"internal/rehearse", "cmd/ddpbatch"},
	"internal/rehearse":   {"cmd/ddpbatch"},
	"internal/collbench":  {"cmd/ddpbatch"},
	"internal/doctor":     {"cmd/ddpbatch"},
	"internal/live":       {"cmd/ddpbatch"},
	"internal/runview":    {"internal/resume", "internal/cancel", "internal/clean", "internal/live", "internal/report", "cmd/ddpbatch"},
	"internal/report":     {"cmd/ddpbatch"},
	"internal/exposition": {"cmd/ddpbatch"},
}

func TestImportsAreAllowed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range sources(t) {
		seen[f.pkg] = true
		for _, path := range f.imports() {
			to, ours := strings.CutPrefix(path, module+"/")
			if ours && !allowed(f.pkg, to) {
				t.Errorf("%s imports %s, which docs/architecture.md does not allow", f.path, to)
			}
		}
	}
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("the list names %s, which is not there", pkg)
		}
	}
}

func allowed(from, to string) bool {
	if strings.HasPrefix(to, "cmd/") {
		return false
	}
	list := mayImport[from]
	if slices.Contains(list, "*") || slices.Contains(list, to) {
		return true
	}
	if parent, _, ok := strings.Cut(to, "/internal/"); ok { // a package may import its own internal packages
		return from == parent || strings.HasPrefix(from, parent+"/")
	}
	if !strings.HasPrefix(to, "internal/") {
		return false
	}
	importers, limited := internalFor[to]
	return !limited || slices.Contains(importers, from)
}

// TestExamplesImportNothingInternal: a user can copy an example of a public package, because the example imports no internal package, which
// other modules cannot import.
func TestExamplesImportNothingInternal(t *testing.T) {
	for _, f := range tree(t) {
		example := filepath.Base(f.path) == "example_test.go" && !strings.HasPrefix(f.pkg, "internal/")
		if !example && (f.isTest || !strings.HasPrefix(f.pkg, "docs/examples/")) {
			continue
		}
		for _, path := range f.imports() {
			if strings.HasPrefix(path, module+"/") && strings.Contains(path, "/internal/") {
				t.Errorf("%s imports %s, which a user's program cannot", f.path, path)
			}
		}
	}
}

// TestDependenciesAreTheListedOnes: the shipped program uses only the modules in this short list. A new module needs a record in docs/adr/
// and a line here.
func TestDependenciesAreTheListedOnes(t *testing.T) {
	direct := []string{
		"github.com/urfave/cli/v2", "github.com/BurntSushi/toml", "github.com/klauspost/compress",
		"gonum.org/v1/gonum", "golang.org/x/sys", "golang.org/x/term", "github.com/ebitengine/purego", "mvdan.cc/sh/v3",
	}
	for _, f := range sources(t) {
		for _, path := range f.imports() {
			first, _, _ := strings.Cut(path, "/")
			if !strings.Contains(first, ".") {
				continue // the standard library, or ours
			}
			if !slices.ContainsFunc(direct, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
				t.Errorf("%s imports %s, which is not an agreed dependency", f.path, path)
			}
			if strings.HasPrefix(path, "github.com/urfave/cli") && !strings.HasPrefix(f.pkg, "cmd/") {
				t.Errorf("%s imports %s; flags belong to cmd", f.path, path)
			}
		}
	}
}
