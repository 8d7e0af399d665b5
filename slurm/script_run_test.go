package slurm

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pretend cluster: ddpbatch and srun are small scripts that record how they were called.
const (
	fakeDdpbatch = `#!/bin/bash
[ "$1 $2" != "attempt watch" ] || { printf '%s ' "$@" >"$LOG.watch"; exit; }
printf '%s\0' ddpbatch "$@" $'\1' >>"$LOG"
case "$1 $2" in
"attempt begin") [ -z "$BEGIN_CODE" ] || exit "$BEGIN_CODE"
  # an array's element has a run directory of its own
  printf 'export DDPBATCH_RUN_DIR=%q\nexport DDPBATCH_SECRET=s3cret\nexport DDPBATCH_STOP_FILE=%q\n' "$3/tasks/0" "$3/stop" ;;
"attempt end") printf %s "$DDPBATCH_SETUP_FAILURE" >"$LOG.failure"
  [ -z "$DEAF" ] || [ -e "$LOG.deaf" ] || { touch "$LOG.deaf"; kill -s KILL $$; }
  echo heard
  [ -z "$END_SIGNAL" ] || kill -s "$END_SIGNAL" $$
  exit "$4" ;;
"run ") echo "secret $DDPBATCH_SECRET in $DDPBATCH_RUN_DIR" >>"$LOG.run"; exit "${RUN_CODE:-0}" ;;
esac
`
	fakeSrun = `#!/bin/bash
[ "$*" != --mpi=list ] || { printf 'MPI plugin types are...\n\tnone\n\t%s\n' "${MPI:-cray_shasta}" >&2; exit; }
printf '%s\0' srun "$@" $'\1' >>"$LOG"
printf %s "${SLURM_CPUS_PER_TASK-unset} ${SLURM_TRES_PER_TASK-unset}" >"$LOG.asked"
while [[ $1 == --* ]]; do shift; done
[ -z "$PAUSE" ] || { echo started; read -r line <"$PAUSE"; }
"$@"
`
)

// scriptRun is a run directory with a rendered script, and the pretend cluster.
type scriptRun struct {
	dir    string
	script string
	env    []string
}

func newScriptRun(t *testing.T, runDir string, change func(*Script)) *scriptRun {
	t.Helper()
	doNotIgnore(t, syscall.SIGINT)
	dir := t.TempDir()
	run := filepath.Join(dir, runDir)
	for _, sub := range []string{filepath.Join(run, "bin"), filepath.Join(dir, "bin")} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(run, "spec.json"), "{}")
	write(t, filepath.Join(run, "bin", "ddpbatch"), fakeDdpbatch)
	write(t, filepath.Join(dir, "bin", "srun"), fakeSrun)
	s := Script{Name: "x", RunDir: run, WorkDir: dir, Nodes: 2, Mode: "agent", Nproc: 4}
	if change != nil {
		change(&s)
	}
	path := filepath.Join(dir, "script.sh")
	write(t, path, render(t, s))
	return &scriptRun{dir: dir, script: path, env: []string{
		"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "HOME=" + dir, "LOG=" + filepath.Join(dir, "log")}}
}

// doNotIgnore makes sure that processes which the test starts can receive sig, even if the tests are a background job of a script. Such a
// job ignores SIGINT, its children inherit that, and a shell cannot trap a signal that was ignored when it started. A signal for which a
// process has called signal.Notify has the default action in its children.
func doNotIgnore(t *testing.T, sig os.Signal) {
	t.Helper()
	received := make(chan os.Signal, 1)
	signal.Notify(received, sig)
	t.Cleanup(func() { signal.Stop(received) })
}

func (s *scriptRun) command(env ...string) *exec.Cmd {
	cmd := exec.Command("bash", s.script)
	cmd.Dir, cmd.Env = s.dir, append(s.env, env...)
	return cmd
}

// run runs the script to its end.
func (s *scriptRun) run(t *testing.T, env ...string) (output string, code int) {
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

// calls returns the commands that ran, each with its words, in order.
func (s *scriptRun) calls(t *testing.T) (calls [][]string) {
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

func TestScriptRunsTheProgramOnce(t *testing.T) {
	s := newScriptRun(t, hostileDir, func(s *Script) { s.CPUsPerRank = 2 })
	out, code := s.run(t, "RUN_CODE=7")
	if code != 7 || out != "" {
		t.Errorf("exit code %d, output %q; want 7 and none", code, out)
	}
	run := filepath.Join(s.dir, hostileDir)
	program := filepath.Join(run, "bin", "ddpbatch")
	element := filepath.Join(run, "tasks", "0")
	want := [][]string{
		{"ddpbatch", "attempt", "begin", run},
		{"srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=8", "--kill-on-bad-exit=1", "--wait=60",
			"--cpu-bind=none", "--mpi=none", "--export=ALL", program, "run"},
		{"ddpbatch", "run"},
		{"ddpbatch", "attempt", "end", "--code", "7", "--signals", "     ", element},
	}
	if got := s.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("calls:\n got %q\nwant %q", got, want)
	}
	if said, err := os.ReadFile(filepath.Join(s.dir, "log.run")); err != nil || string(said) != "secret s3cret in "+element+"\n" {
		t.Errorf("the agent saw %q (%v)", said, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "pwned")); err == nil {
		t.Error("a path was run as a command")
	}
}

func TestScriptStopsWhereAttemptIsRefused(t *testing.T) {
	s := newScriptRun(t, "run", nil)
	if _, code := s.run(t, "BEGIN_CODE=93"); code != 93 {
		t.Errorf("exit code %d, want that of attempt begin, 93", code)
	}
	if calls := s.calls(t); len(calls) != 1 {
		t.Errorf("went on after a refused attempt: %q", calls)
	}
}

// The agents use PMI-2 if srun supports it.
func TestScriptUsesPMI2(t *testing.T) {
	s := newScriptRun(t, "run", func(s *Script) { s.MinNodes, s.Grace = 1, time.Minute })
	if out, code := s.run(t, "MPI=pmi2"); code != 0 || out != "" {
		t.Errorf("exit code %d, output %q", code, out)
	}
	srun := s.calls(t)[1]
	if want := []string{"--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--cpu-bind=none", "--mpi=pmi2",
		"--export=ALL"}; !slices.Equal(srun[4:10], want) {
		t.Errorf("srun's options are %q, want %q at their end", srun[1:10], want)
	}
}

// A step of agents has all cores of the job, however many it requested, and the GPUs that were requested for a task. If each rank is a
// task, the step has what sbatch was asked for, unless the job has components: then the variable holds only the request of the first
// component. The texts are those of Slurm 25.11 (SLURM_TRES_PER_TASK), and what a user may write.
func TestScriptLeavesGPUsToTasks(t *testing.T) {
	for _, test := range []struct{ mode, tres, want string }{
		{"agent", "", "unset"},
		{"agent", "cpu=4", "unset"},
		{"agent", "cpu:4", "unset"},
		{"agent", "gres/gpu=1", "gres/gpu=1"},
		{"agent", "cpu=4,gres/gpu=1", "gres/gpu=1"},
		{"agent", "gres/gpu:a100=1,cpu=16,license/x=2", "gres/gpu:a100=1,license/x=2"},
		{"agent", "gres/gpu=1,cpu:4", "gres/gpu=1"},
		{"agent", "gres/xcpu=1", "gres/xcpu=1"},
		{"task", "", "unset"},
		{"task", "cpu=3", "cpu=3"},
		{"task", "cpu=4,gres/gpu=1", "cpu=4,gres/gpu=1"},
		{"components", "cpu=2", "unset"},
	} {
		s := newScriptRun(t, "run", func(s *Script) {
			if s.Mode = test.mode; s.Mode == "components" {
				s.Mode, s.Components = "task", []Component{{Nodes: 1, Nproc: 1}}
			}
		})
		env := []string{"SLURM_CPUS_PER_TASK=4"}
		if test.tres != "" {
			env = append(env, "SLURM_TRES_PER_TASK="+test.tres)
		}
		out, code := s.run(t, env...)
		said, err := os.ReadFile(filepath.Join(s.dir, "log.asked"))
		if code != 0 || out != "" || err != nil || string(said) != "unset "+test.want {
			t.Errorf("%s, %q: srun saw %q (%v), want %q; exit code %d, output %q", test.mode, test.tres, said, err,
				"unset "+test.want, code, out)
		}
	}
}

// If srun outlives agents that are lost, the script starts attempt watch, which ends srun.
func TestScriptWatchesAStepThatOutlivesAgents(t *testing.T) {
	for least, want := range map[int]string{0: "", 1: `^attempt watch --srun [0-9]+ /.*/run/tasks/0 $`} {
		s := newScriptRun(t, "run", func(s *Script) { s.MinNodes = least })
		if out, code := s.run(t); code != 0 || out != "" {
			t.Errorf("exit code %d, output %q", code, out)
		}
		said, err := os.ReadFile(filepath.Join(s.dir, "log.watch"))
		if (want == "") != errors.Is(err, os.ErrNotExist) || !regexp.MustCompile(want).Match(said) {
			t.Errorf("with min_nodes %d: %q, %v", least, said, err)
		}
	}
}

// posixModes are two ways in which sbatch may pass its environment to the script's bash: the usual one, and POSIX mode.
var posixModes = map[string][]string{"bash": nil, "posix": {"POSIXLY_CORRECT=1"}}

// The script exits with srun's code, even if it is that of a signal.
func TestScriptPassesCode(t *testing.T) {
	for name, env := range posixModes {
		for _, code := range []int{0, 1, 75, 93, 127, 128, 137, 143, 255} {
			s := newScriptRun(t, "run", nil)
			if out, got := s.run(t, append(env, "RUN_CODE="+strconv.Itoa(code))...); got != code || out != "" {
				t.Errorf("%s: exit code %d, want %d; output %q", name, got, code, out)
			}
		}
	}
}

func TestScriptNeedsSharedFiles(t *testing.T) {
	s := newScriptRun(t, "run", nil)
	if err := os.RemoveAll(filepath.Join(s.dir, "run", "bin")); err != nil {
		t.Fatal(err)
	}
	if out, code := s.run(t); code != 1 || !strings.Contains(out, "a file system that all nodes share") {
		t.Errorf("exit code %d, output %q", code, out)
	}
}

// TestScriptRunsOnlyItsOwn checks that the batch script starts no program that another user could have changed.
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
		names  string // what the message names below the folder of runs
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
			s := newScriptRun(t, "runs/it's #1 [a]", nil)
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

// If find prints nothing, the script does not take that for success. If a signal has interrupted find, the script runs it again.
func TestScriptDoesNotTrustSilence(t *testing.T) {
	real, err := exec.LookPath("find")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		find string
		code int
		says string // the cause; "": it runs
	}{
		"find fails":         {"exit 1", 2, "find could not determine the owner of RUN (exit code 1)"},
		"no find":            {"exit 127", 2, "find could not determine the owner of RUN (exit code 127)"},
		"always a signal":    {"kill -s TERM $$", 2, "find could not determine the owner of RUN (exit code 143)"},
		"found, and failed":  {`printf %s /there; exit 1`, 2, "another user might have changed it: /there must belong to you"},
		"a signal that once": {`[ -e "$LOG.struck" ] || { touch "$LOG.struck"; kill -s TERM $$; }; exec ` + real + ` "$@"`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScriptRun(t, "runs/x", nil)
			write(t, filepath.Join(s.dir, "bin", "find"), "#!/bin/bash\n"+test.find+"\n")
			out, code := s.run(t)
			says := strings.Replace(test.says, "RUN", filepath.Join(s.dir, "runs", "x"), 1)
			if code != test.code || !strings.Contains(out, says) {
				t.Errorf("exit code %d, want %d and a message with %q:\n%s", code, test.code, says, out)
			}
			if strings.Contains(says, "could not tell") && strings.Contains(out, "another user") {
				t.Errorf("it names a cause that it cannot know:\n%s", out)
			}
		})
	}
}
