package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/mpi/launch/output"
)

// --log-dir has torchrun's layout, by round; the verdict names the file that is there.
func TestLogDir(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "flaky", "1", "1", "3")
	w.elastic(0, 1)
	dir := t.TempDir()
	for i := range w.agents {
		w.agents[i].LogDir = filepath.Join(dir, w.agents[i].Host)
		w.agents[i].Output = output.Config{Prefix: "<${rank}> ", OutFilters: []string{"1 2 1"}}
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	for _, round := range []string{"attempt_0", "attempt_1"} {
		found, err := filepath.Glob(filepath.Join(dir, "n2", "*", round, "0", "stdout.log"))
		must(t, err)
		if len(found) != 1 {
			t.Fatalf("%s: found %v", round, found)
		}
		text, err := os.ReadFile(found[0])
		if err != nil || !strings.HasPrefix(string(text), "1 2 1 2 ") {
			t.Errorf("%s has %q, %v", found[0], text, err)
		}
		filtered, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(found[0])), "filtered_stdout.log"))
		if err != nil || !strings.HasSuffix(string(filtered), string(text)) {
			t.Errorf("the file of all ranks has %q, %v", filtered, err)
		}
	}
	v, err := w.dir.Verdict(1)
	if err != nil || !strings.Contains(v.Message, filepath.Join("attempt_0", "0", "stdout.log")) {
		t.Errorf("verdict is %+v, %v", v, err)
	}
	if !strings.Contains(w.out.String(), "<1> 1 2 1 2 0 0 ") {
		t.Errorf("the console has %q", w.out.String())
	}
}

// Filters without --log-dir: the file is in the run directory.
func TestFilteredInTheRunDirectory(t *testing.T) {
	w := newWorld(t, []int{2}, "say", "yes\nno\n")
	w.agents[0].Output.OutFilters = []string{"yes"}
	w.agree(w.run())
	text, err := os.ReadFile(filepath.Join(w.dir.LogsPath(1), "n1.filtered.out"))
	if err != nil || strings.Count(string(text), "yes\n") != 2 || strings.Contains(string(text), "no") {
		t.Errorf("it has %q, %v", text, err)
	}
}
