package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestScriptRunsOnlyItsOwn holds that the batch script starts no program that another user could have changed.
func TestScriptRunsOnlyItsOwn(t *testing.T) {
	const stranger = 4242
	chmod := func(name string, mode os.FileMode) func(run string) error {
		return func(run string) error { return os.Chmod(filepath.Join(run, name), mode) }
	}
	chown := func(name string) func(run string) error {
		return func(run string) error { return os.Lchown(filepath.Join(run, name), stranger, stranger) }
	}
	for _, test := range []struct {
		name   string
		change func(run string) error
		runs   bool
		names  string // what the message names, below the folder of runs
	}{
		{"nothing changed", func(string) error { return nil }, true, ""},
		{"others write to runs, which is sticky", chmod("..", 0o777|os.ModeSticky), true, ""},
		{"the group writes to runs", chmod("..", 0o775), false, "/runs/. must"},
		{"others write to runs", chmod("..", 0o757), false, "/runs/. must"},
		{"runs is another's", chown(".."), false, "/runs/. must"},
		{"runs is another's, and sticky", func(run string) error {
			if err := os.Chown(filepath.Dir(run), stranger, stranger); err != nil {
				return err
			}
			return os.Chmod(filepath.Dir(run), 0o777|os.ModeSticky)
		}, false, "/runs/. must"},
		{"the run directory is another's", chown("."), false, "/runs/it's #1 [a] must"},
		{"others write to the run directory", chmod(".", 0o770), false, "/runs/it's #1 [a] must"},
		{"the run directory is a link", func(run string) error {
			if err := os.Rename(run, run+"2"); err != nil {
				return err
			}
			return os.Symlink(run+"2", run)
		}, false, "/runs/it's #1 [a] must"},
		{"the spec is another's", chown("spec.json"), false, "/spec.json must"},
		{"the program is another's", chown("bin/ddpbatch"), false, "/bin/ddpbatch must"},
		{"others write to the program", chmod("bin/ddpbatch", 0o722), false, "/bin/ddpbatch must"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, "runs/it's #1 [a]", nil)
			if err := test.change(filepath.Join(s.dir, "runs", "it's #1 [a]")); err != nil {
				if os.Geteuid() != 0 {
					t.Skipf("only root gives files to another user: %v", err)
				}
				t.Fatal(err)
			}
			out, code := s.run(t)
			calls := s.calls(t)
			if test.runs {
				if code != 0 || len(calls) != 4 { // begin, srun and run, end
					t.Errorf("exit code %d after %d calls, want 0 after 4:\n%s", code, len(calls), out)
				}
				return
			}
			for _, call := range calls {
				if call[0] == "ddpbatch" {
					t.Errorf("the script ran %q", call)
				}
			}
			if code != 2 || !strings.Contains(out, "nothing is run") || !strings.Contains(out, test.names) {
				t.Errorf("exit code %d, want 2 and a message that names %q:\n%s", code, test.names, out)
			}
		})
	}
}

// TestScriptDoesNotTrustSilence holds that no answer of find's is taken for a good one, and that one which a signal cut short is asked for
// again.
func TestScriptDoesNotTrustSilence(t *testing.T) {
	real, err := exec.LookPath("find")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		find string
		code int
		says string
	}{
		"find fails":         {"exit 1", 2, "nothing is run: find could not tell whose "},
		"find is not there":  {"exit 127", 2, " is (exit code 127)\n"},
		"find names one":     {"echo /x; exit 1", 2, "nothing is run, as another user might have changed it: /x must belong to you"},
		"always a signal":    {"kill -s TERM $$", 2, " is (exit code 143)\n"},
		"a signal that once": {`[ -e "$LOG.struck" ] || { touch "$LOG.struck"; kill -s TERM $$; }; exec ` + real + ` "$@"`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, "runs/x", nil)
			write(t, filepath.Join(s.dir, "bin", "find"), "#!/bin/bash\n"+test.find+"\n")
			if out, code := s.run(t); code != test.code || !strings.Contains(out, test.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, test.code, test.says, out)
			}
		})
	}
}
