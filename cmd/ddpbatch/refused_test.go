package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// refusals returns what sbatch of two releases printed when it refused jobs, with its exit codes, as recorded in slurm/testdata.
func refusals(t *testing.T) map[string][2]string {
	t.Helper()
	all := map[string][2]string{}
	for _, file := range must(t, filepath.Glob, "../../slurm/testdata/22.05/sbatch-errors/*.stderr") {
		code := strings.TrimSpace(string(must(t, os.ReadFile, strings.TrimSuffix(file, "stderr")+"rc")))
		if text := string(must(t, os.ReadFile, file)); text != "" && code != "0" {
			all[file] = [2]string{text, code}
		}
	}
	for _, file := range must(t, filepath.Glob, "../../slurm/testdata/25.11/refused/*.txt") { // "$ command", what it printed, "exit N"
		_, printed, _ := strings.Cut(string(must(t, os.ReadFile, file)), "\n")
		at := strings.LastIndex(printed, "exit ")
		all[file] = [2]string{printed[:at], strings.TrimSpace(printed[at+len("exit "):])}
	}
	return all
}

// Whatever the reason for which sbatch refuses a job, submit shows sbatch's words, ends with 20 and leaves nothing behind.
func TestSubmitShowsWhySlurmRefuses(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	all := refusals(t)
	if len(all) < 35 {
		t.Errorf("%d refusals", len(all))
	}
	for file, refusal := range all {
		q.says("printed", strings.TrimSuffix(refusal[0], "\n"))
		q.must(os.WriteFile(filepath.Join(q.dir, "sbatch"),
			fmt.Appendf(nil, "#!/bin/sh\ncat '%s/printed' >&2\nexit %s\n", q.dir, refusal[1]), 0o700))
		code, out, errs := q.run(parent, "submit", "job.toml")
		if code != exit.Refused || out != "" || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "a rule of the site") {
			t.Errorf("%s: exit code %d\n%s%s", file, code, out, errs)
		}
		for line := range strings.Lines(refusal[0]) {
			words := strings.TrimSpace(line)
			for _, prefix := range []string{"sbatch: ", "error: ", "fatal: "} {
				words = strings.TrimPrefix(words, prefix)
			}
			if strings.HasPrefix(words, "Try ") { // "Try sbatch --help", which would not help here
				continue
			}
			if !strings.Contains(errs, words) {
				t.Errorf("%s: %q is not among\n%s", file, words, errs)
			}
		}
		if left, err := os.ReadDir(filepath.Join(parent, "runs")); err != nil || len(left) > 0 {
			t.Fatalf("%s: left behind: %v, %v", file, left, err)
		}
	}
}
