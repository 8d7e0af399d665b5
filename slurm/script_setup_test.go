package slurm

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// "set -x" in the user's lines does not print the secret, "set -a" does not export the variable that holds it, and a trap does not show it.
func TestScriptKeepsSecret(t *testing.T) {
	for _, line := range []string{"set -xa", `trap 'echo "$BASH_COMMAND"' DEBUG`} {
		s := newScriptRun(t, "run", func(s *Script) { s.Setup.Script = []string{line} })
		out, code := s.run(t)
		if code != 0 || strings.Contains(out, "s3cret") {
			t.Errorf("%s: exit code %d, output %q", line, code, out)
		}
	}
}

// Signals that arrive before srun is called do not end the script. If they did, no process would be left to ask Slurm what they mean.
func TestScriptReceivesBeforeSrun(t *testing.T) {
	for _, test := range []struct {
		setup   string
		code    string
		signals string
	}{
		{"kill -s TERM $$", "143", "TERM"},
		{"kill -s TERM $$; false", "143", "TERM"},
		{"set -eu; kill -s INT $$", "143", "INT"},
		{"set -u; kill -s USR2 $$", "75", "USR2"},
		{"kill -s USR1 $$; kill -s TERM $$", "143", "TERM USR1"},
	} {
		s := newScriptRun(t, "run", func(s *Script) { s.Setup.Script = []string{test.setup} })
		out, code := s.run(t, "DDPBATCH_STOP_FILE="+filepath.Join(s.dir, "another's"))
		if strconv.Itoa(code) != test.code {
			t.Errorf("%s: exit code %d, want %s; output %q", test.setup, code, test.code, out)
		}
		run := filepath.Join(s.dir, "run")
		calls := s.calls(t)
		if len(calls) != 2 || !slices.Equal(calls[0], []string{"ddpbatch", "attempt", "begin", run}) {
			t.Errorf("%s: %q", test.setup, calls)
			continue
		}
		end := calls[1]
		if end[4] != test.code || strings.Join(strings.Fields(end[6]), " ") != test.signals ||
			!slices.Equal(end[7:], []string{"--unstarted", filepath.Join(run, "tasks", "0")}) {
			t.Errorf("%s: %q", test.setup, end)
		}
		if _, err := os.Stat(filepath.Join(s.dir, "another's")); err == nil {
			t.Errorf("%s: the stop file of another run was made", test.setup)
		}
	}
}

func TestScriptRunsTheSetup(t *testing.T) {
	dir := t.TempDir()
	venv := filepath.Join(dir, "my venv")
	if err := os.MkdirAll(filepath.Join(venv, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(venv, "bin", "activate"), "export VENV=on\n")
	write(t, filepath.Join(dir, "broken"), "false\ntrue\n")
	write(t, filepath.Join(dir, "purges"), "module purge\ntrue\n")
	for name, c := range map[string]struct {
		setup Setup
		env   []string
		code  int
		says  string
	}{
		"venv":       {Setup{Venv: venv, Script: []string{`echo "venv is $VENV"`}}, nil, 0, "venv is on"},
		"no venv":    {Setup{Venv: filepath.Join(dir, "none")}, nil, 1, "cannot read " + dir + "/none/bin/activate"},
		"no modules": {Setup{Modules: []string{"python/3.8"}}, nil, 1, `no "module" command on this node: leave setup.modules out`},
		"module": {Setup{Modules: []string{"a b", "c"}}, []string{`BASH_FUNC_module%%=() { echo "module: $1 <$2>"; }`},
			0, "module: load <a b>\nmodule: load <c>"},
		"missing module": {Setup{Modules: []string{"a b"}}, []string{`BASH_FUNC_module%%=() { return 1; }`},
			1, "cannot load the module a b"},
		"no conda": {Setup{Conda: "env"}, nil, 1, "cannot run conda"},
		"conda": {Setup{Conda: "my env"}, []string{`BASH_FUNC_conda%%=() { if [ "$1" = activate ]; then echo "conda: <$2>"; fi; }`},
			0, "conda: <my env>"},
		"missing conda env": {Setup{Conda: "env"}, []string{`BASH_FUNC_conda%%=() { [ "$1" != activate ]; }`},
			1, "cannot activate the conda environment env"},
		"own line fails": {Setup{Script: []string{"true", "ls /nonexistent/x"}},
			nil, 1, "setup.script: exit code 2 from: ls /nonexistent/x"},
		"own line lacks modules": {Setup{Script: []string{"module purge"}}, nil, 1,
			`exit code 127 from: module purge: no "module" command on this node: write "source /etc/profile.d/NAME.sh" before it`},
		"own line fails after modules in a sourced file": {Setup{Script: []string{
			"source " + ShellQuote(filepath.Join(dir, "purges")), "ls /nonexistent/x"}}, nil, 1,
			"setup.script: exit code 2 from: ls /nonexistent/x"},
		"own line may fail": {Setup{Script: []string{"false || true", "if false; then", "  :", "fi", "echo went on"}},
			nil, 0, "went on"},
		"inside a sourced file": {Setup{Script: []string{"source " + ShellQuote(filepath.Join(dir, "broken")), "echo went on"}},
			nil, 0, "went on"},
		"missing sourced file": {Setup{Script: []string{"source /nonexistent/env.sh"}},
			nil, 1, "setup.script: exit code 1 from: source /nonexistent/env.sh"},
		"leaves":        {Setup{Script: []string{"exit 7"}}, nil, 1, "[setup] ended the batch script with exit code 7"},
		"leaves with 0": {Setup{Script: []string{"exit 0"}}, nil, 0, ""},
		"what is not set": {Setup{Script: []string{"set -u", `: "$not_set"`}},
			nil, 1, "[setup] ended the batch script with exit code 1"},
		"strict in a sourced file": {Setup{Script: []string{"set -e", "source " + ShellQuote(filepath.Join(dir, "broken"))}},
			nil, 1, "[setup] ended the batch script with exit code 1"},
		"strict mode":               {Setup{Script: []string{"set -euo pipefail"}}, []string{"RUN_CODE=0"}, 0, ""},
		"nothing but strict, fails": {Setup{Script: []string{"set -eu"}}, []string{"RUN_CODE=3"}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if found, _ := filepath.Glob("/etc/profile.d/*mod*.sh"); name == "no modules" && len(found) > 0 {
				t.Skipf("this machine has modules: %s", found)
			}
			s := newScriptRun(t, "run", func(s *Script) { s.Setup = c.setup })
			out, code := s.run(t, c.env...)
			const lacks = `no "module" command`
			if code != c.code || !strings.Contains(out, c.says) || strings.Contains(out, lacks) != strings.Contains(c.says, lacks) {
				t.Errorf("exit code %d, output %q; want %d and %q", code, out, c.code, c.says)
			}
			run := filepath.Join(s.dir, "run")
			end := []string{"ddpbatch", "attempt", "end", "--code", strconv.Itoa(c.code), "--signals", "     ",
				filepath.Join(run, "tasks", "0")}
			want := [][]string{{"ddpbatch", "attempt", "begin", run}, end}
			calls := s.calls(t)
			switch {
			case name == "leaves with 0": // nothing has failed, so neither attempt begin nor attempt end runs
				want = nil
			case c.code != 1 && len(calls) == 4: // srun and run are between
				calls = [][]string{calls[0], calls[3]}
			case c.code == 1:
				if got, err := os.ReadFile(filepath.Join(s.dir, "log.failure")); err != nil || !strings.Contains(string(got), c.says) {
					t.Errorf("attempt end got %q, %v", got, err)
				}
			}
			if !reflect.DeepEqual(calls, want) {
				t.Errorf("calls are %q, want %q", calls, want)
			}
		})
	}
}

// If the setup fails after a warning, it still counts as a failure.
func TestScriptFailsInSetup(t *testing.T) {
	s := newScriptRun(t, "run", func(s *Script) { s.Setup.Script = []string{"kill -s USR2 $$", "false"} })
	if out, code := s.run(t, "DDPBATCH_SETUP_FAILURE=another's"); code != 1 || !strings.Contains(out, "from: false") {
		t.Errorf("exit code %d, output %q", code, out)
	}
	if calls := s.calls(t); len(calls) != 2 || calls[1][4] != "1" {
		t.Errorf("ran %q", calls)
	}
}

// If a line of the setup fails, the script leaves it to attempt end to print that line, which may hold secrets. The user's own trap on EXIT
// runs.
func TestScriptFailsWithSecret(t *testing.T) {
	s := newScriptRun(t, "run", func(s *Script) {
		s.Setup.Script = []string{"trap 'echo own trap' EXIT", "MY_TOKEN=s3cret ls /nonexistent/x 2>/dev/null"}
	})
	if out, code := s.run(t); code != 1 || out != "own trap\n" {
		t.Errorf("exit code %d, output %q", code, out)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, "log.failure")); err != nil ||
		!strings.Contains(string(got), "from: MY_TOKEN=s3cret ls") {
		t.Errorf("attempt end got %q, %v", got, err)
	}
	for _, call := range s.calls(t) {
		if strings.Contains(strings.Join(call, " "), "s3cret") { // every user can see a command line
			t.Errorf("ran %q", call)
		}
	}
}
