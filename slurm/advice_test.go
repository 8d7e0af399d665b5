package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// refusalsOfCorpus returns all outputs of sbatch in testdata that refuse a job, by name.
func refusalsOfCorpus(t *testing.T) map[string]Output {
	t.Helper()
	all := map[string]Output{}
	files, err := filepath.Glob(filepath.Join(corpus, "sbatch-errors", "*.rc"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := "sbatch-errors/" + strings.TrimSuffix(filepath.Base(file), ".rc")
		if out := recorded(t, name); out.Code != 0 && len(out.Stderr) > 0 {
			all["22.05/"+name] = out
		}
	}
	all["22.05/cli/sbatch-clusters-bad"] = recorded(t, "cli/sbatch-clusters-bad")
	newer, err := filepath.Glob(filepath.Join("testdata", "25.11", "refused", "*.txt"))
	if err != nil || len(newer) < 10 {
		t.Fatalf("%d files of 25.11: %v", len(newer), err)
	}
	for _, file := range newer { // "$ command", what it printed, "exit N"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, printed, _ := strings.Cut(string(text), "\n")
		at := strings.LastIndex(printed, "exit ")
		code, err := strconv.Atoi(strings.TrimSpace(printed[at+len("exit "):]))
		if err != nil || code == 0 {
			t.Fatalf("%s: exit code %d, %v", file, code, err)
		}
		all["25.11/"+filepath.Base(file)] = Output{Stderr: []byte(printed[:at]), Code: code}
	}
	return all
}

// The error for each recorded refusal has Slurm's own words and advice, on one line.
func TestEveryRefusalOfTheCorpusHasAdvice(t *testing.T) {
	general := (&RefusedError{Command: "sbatch", Words: "a rule of the site"}).Advice()
	refusals := 0
	for name, out := range refusalsOfCorpus(t) {
		err := failure("sbatch", out)
		var refused *RefusedError
		if !errors.As(err, &refused) {
			continue // the controller could not be asked
		}
		refusals++
		advice := refused.Advice()
		if advice == "" || advice == general {
			t.Errorf("%s: %s: the advice is %q", name, refused.Words, advice)
		}
		said := err.Error()
		if !strings.Contains(said, refused.Words) || !strings.HasSuffix(said, "; "+advice) || strings.ContainsAny(said, "\n\r") {
			t.Errorf("%s: %q", name, said)
		}
	}
	if refusals < 34 {
		t.Errorf("%d refusals", refusals)
	}
}

func TestAdviceNamesTheKeyToChange(t *testing.T) {
	for words, want := range map[string]string{
		"Invalid --time specification": "correct slurm.time in the job file",
		"Invalid --mem-per-cpu specification": "correct " +
			"slurm.mem_per_cpu in the job file",
		`Invalid numeric value "0" for --ntasks.`: "sbatch's --ntasks: set " +
			"launch.nproc_per_node and slurm.nodes",
		`invalid partition specified: x; Invalid partition name specified`: `set slurm.partition to ` +
			`one that "sinfo -s" lists`,
		"allocation failure: Requested time limit is invalid (missing or exceeds some limit)":    "lower slurm.time",
		"CPU count per node can not be satisfied; Requested node configuration is not available": "lower launch.nproc_per_node",
		"Invalid job array specification": "correct slurm.array: its indices must be below MaxArraySize",
		"Your project has no hours left":  "[slurm]",
	} {
		if got := (&RefusedError{Command: "sbatch", Words: words}).Advice(); !strings.Contains(got, want) {
			t.Errorf("%s: %q; want %q in it", words, got, want)
		}
	}
	for _, e := range []*RefusedError{{Command: "scontrol", Words: "Access denied"}, {Command: "sbatch"}} {
		if got := e.Advice(); got != "" {
			t.Errorf("%+v: %q", e, got)
		}
	}
}
