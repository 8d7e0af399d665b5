package slurm

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A pretend cluster: ddpbatch and srun are small scripts that write down how they were called.
const (
	fakeDdpbatch = `#!/bin/bash
printf '%s\0' ddpbatch "$@" $'\1' >>"$LOG"
case "$1 $2" in
"attempt begin") [ -z "$BEGIN_CODE" ] || exit "$BEGIN_CODE"
  printf 'export DDPBATCH_RUN_DIR=%q\nexport DDPBATCH_SECRET=s3cret\n' "$3" ;;
"attempt end") exit "$4" ;;
"run ") echo "secret $DDPBATCH_SECRET in $DDPBATCH_RUN_DIR" >>"$LOG.run"; exit "${RUN_CODE:-0}" ;;
esac
`
	fakeSrun = `#!/bin/bash
printf '%s\0' srun "$@" $'\1' >>"$LOG"
while [[ $1 == --* ]]; do shift; done
[ -z "$PAUSE" ] || { echo started; read -r line <"$PAUSE"; }
"$@"
`
)

// stage is a run directory with a rendered script in it, and the pretend cluster.
type stage struct {
	dir    string
	script string
	env    []string
}

func newStage(t *testing.T, runDir string, change func(*Script)) *stage {
	t.Helper()
	dir := t.TempDir()
	run := filepath.Join(dir, runDir)
	for _, sub := range []string{filepath.Join(run, "bin"), filepath.Join(dir, "bin")} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(run, "bin", "ddpbatch"), fakeDdpbatch)
	write(t, filepath.Join(dir, "bin", "srun"), fakeSrun)
	s := Script{Name: "x", RunDir: run, WorkDir: dir, Nodes: 2, Mode: "agent", Nproc: 4}
	if change != nil {
		change(&s)
	}
	path := filepath.Join(dir, "script.sh")
	write(t, path, render(t, s))
	return &stage{dir: dir, script: path, env: []string{
		"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "HOME=" + dir, "LOG=" + filepath.Join(dir, "log")}}
}

func (s *stage) command(env ...string) *exec.Cmd {
	cmd := exec.Command("bash", s.script)
	cmd.Dir, cmd.Env = s.dir, append(s.env, env...)
	return cmd
}

// run runs the script to its end.
func (s *stage) run(t *testing.T, env ...string) (output string, code int) {
	t.Helper()
	out, err := s.command(env...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}

// calls are the commands that ran, each with its words, in order.
func (s *stage) calls(t *testing.T) (calls [][]string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var call []string
	for word := range strings.SplitSeq(string(log), "\x00") {
		if word == "\x01" {
			calls, call = append(calls, call), nil
			continue
		}
		call = append(call, word)
	}
	return calls
}

const hostileDir = "run's \"1\" $(touch pwned) `touch pwned`; #x 100%j *"

func TestScriptRuns(t *testing.T) {
	s := newStage(t, hostileDir, func(s *Script) { s.CPUsPerRank = 2 })
	out, code := s.run(t, "RUN_CODE=7")
	if code != 7 || out != "" {
		t.Errorf("exit code %d, output %q; want 7 and none", code, out)
	}
	run := filepath.Join(s.dir, hostileDir)
	program := filepath.Join(run, "bin", "ddpbatch")
	want := [][]string{
		{"ddpbatch", "attempt", "begin", run},
		{"srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=8", "--cpu-bind=none", "--kill-on-bad-exit=1", "--mpi=none", "--export=ALL", program, "run"},
		{"ddpbatch", "run"},
		{"ddpbatch", "attempt", "end", "--code", "7", run},
	}
	if got := s.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("calls:\n got %q\nwant %q", got, want)
	}
	if said, err := os.ReadFile(filepath.Join(s.dir, "log.run")); err != nil || string(said) != "secret s3cret in "+run+"\n" {
		t.Errorf("the agent saw %q (%v)", said, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "pwned")); err == nil {
		t.Error("a path was run as a command")
	}
}

func TestScriptStopsWhereAttemptIsRefused(t *testing.T) {
	s := newStage(t, "run", nil)
	if _, code := s.run(t, "BEGIN_CODE=93"); code != 93 {
		t.Errorf("exit code %d, want that of attempt begin, 93", code)
	}
	if calls := s.calls(t); len(calls) != 1 {
		t.Errorf("went on after a refused attempt: %q", calls)
	}
}

// Signals interrupt bash's wait; the script must go on waiting, and still tell srun's own code.
func TestScriptSurvivesSignals(t *testing.T) {
	s := newStage(t, "run", nil)
	pause := filepath.Join(s.dir, "pause")
	if err := syscall.Mkfifo(pause, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("PAUSE="+pause, "RUN_CODE=5")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("srun said %q (%v)", line, err)
	}
	for range 10 {
		for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2, syscall.SIGQUIT} {
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatalf("send %v: %v", sig, err)
			}
		}
	}
	if err := os.WriteFile(pause, []byte("go on\n"), 0o600); err != nil { // blocks until srun reads
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit %v, want srun's code 5; stderr: %s", cmd.ProcessState, stderr.String())
	}
}

func TestScriptSetup(t *testing.T) {
	dir := t.TempDir()
	venv := filepath.Join(dir, "my venv")
	if err := os.MkdirAll(filepath.Join(venv, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(venv, "bin", "activate"), "export VENV=on\n")
	write(t, filepath.Join(dir, "broken"), "false\ntrue\n")
	for name, c := range map[string]struct {
		setup Setup
		env   []string
		code  int
		says  string
	}{
		"venv":                      {Setup{Venv: venv, Script: []string{`echo "venv is $VENV"`}}, nil, 0, "venv is on"},
		"no venv":                   {Setup{Venv: filepath.Join(dir, "none")}, nil, 1, "cannot read " + dir + "/none/bin/activate"},
		"no modules":                {Setup{Modules: []string{"python/3.8"}}, []string{"PATH=/nonexistent"}, 1, `there is no "module" command`},
		"module":                    {Setup{Modules: []string{"a b", "c"}}, []string{`BASH_FUNC_module%%=() { echo "module: $1 <$2>"; }`}, 0, "module: load <a b>\nmodule: load <c>"},
		"missing module":            {Setup{Modules: []string{"a b"}}, []string{`BASH_FUNC_module%%=() { return 1; }`}, 1, "cannot load the module a b"},
		"no conda":                  {Setup{Conda: "env"}, nil, 1, "cannot run conda"},
		"conda":                     {Setup{Conda: "my env"}, []string{`BASH_FUNC_conda%%=() { if [ "$1" = activate ]; then echo "conda: <$2>"; fi; }`}, 0, "conda: <my env>"},
		"missing conda env":         {Setup{Conda: "env"}, []string{`BASH_FUNC_conda%%=() { [ "$1" != activate ]; }`}, 1, "cannot activate the conda environment env"},
		"own line fails":            {Setup{Script: []string{"true", "ls /nonexistent/x"}}, nil, 1, "setup.script: exit code 2 from: ls /nonexistent/x"},
		"own line may fail":         {Setup{Script: []string{"false || true", "if false; then", "  :", "fi", "echo went on"}}, nil, 0, "went on"},
		"inside a sourced file":     {Setup{Script: []string{"source " + ShellQuote(filepath.Join(dir, "broken")), "echo went on"}}, nil, 0, "went on"},
		"missing sourced file":      {Setup{Script: []string{"source /nonexistent/env.sh"}}, nil, 1, "setup.script: exit code 1 from: source /nonexistent/env.sh"},
		"strict mode":               {Setup{Script: []string{"set -euo pipefail"}}, []string{"RUN_CODE=0"}, 0, ""},
		"nothing but strict, fails": {Setup{Script: []string{"set -eu"}}, []string{"RUN_CODE=3"}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if found, _ := filepath.Glob("/etc/profile.d/*mod*.sh"); name == "no modules" && len(found) > 0 {
				t.Skipf("this machine has modules: %s", found)
			}
			s := newStage(t, "run", func(s *Script) { s.Setup = c.setup })
			out, code := s.run(t, c.env...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit code %d, output %q; want %d and %q", code, out, c.code, c.says)
			}
			if began := len(s.calls(t)) > 0; began != (c.says == "" || c.code == 0) {
				t.Errorf("attempt begun: %t", began)
			}
		})
	}
}

// "set -x" in the user's lines must not print the secret, nor "set -a" export what holds it.
func TestScriptKeepsSecret(t *testing.T) {
	s := newStage(t, "run", func(s *Script) { s.Setup.Script = []string{"set -xa"} })
	out, code := s.run(t)
	if code != 0 || strings.Contains(out, "s3cret") {
		t.Errorf("exit code %d, output %q", code, out)
	}
}

func TestScriptWithoutSharedFiles(t *testing.T) {
	s := newStage(t, "run", nil)
	if err := os.RemoveAll(filepath.Join(s.dir, "run", "bin")); err != nil {
		t.Fatal(err)
	}
	if out, code := s.run(t); code != 1 || !strings.Contains(out, "a file system that all nodes share") {
		t.Errorf("exit code %d, output %q", code, out)
	}
}
