package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/testkit"
)

// Two user ids without accounts.
const (
	victim   = 4242
	attacker = 4243
)

// lab is a machine with two users, a project folder, this program, and Slurm's commands, which record who called them.
type lab struct {
	t       *testing.T
	dir     string // of root, open to all
	project string // root's, open to all, sticky
	program string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	testkit.EnterTemp(t)
	dir := t.TempDir()
	l := &lab{t: t, dir: dir, project: filepath.Join(dir, "project"), program: filepath.Join(dir, "bin", "ddpbatch")}
	for path, mode := range map[string]fs.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, l.project: 0o777 | fs.ModeSticky,
		filepath.Dir(l.program): 0o755} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	shipped, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	l.write("bin/ddpbatch", string(shipped), 0o755)
	l.write("calls", "", 0o666)
	for name, says := range map[string]string{
		"sbatch": "500", "scancel": "", "scontrol": "", "sinfo": "", "sacct": "",
		"squeue": strings.ReplaceAll("500|500|RUNNING|None|N/A|1:00|x", "|", "\x1f"),
	} {
		l.write("bin/"+name, fmt.Sprintf("#!/bin/sh\necho \"%[1]s by $(id -u) $*\" >>%[2]s/calls\nprintf '%%s\\n' '%[3]s'\n",
			name, dir, says), 0o755)
	}
	l.write("bin/srun", fmt.Sprintf("#!/bin/sh\necho \"srun by $(id -u) $*\" >>%s/calls\n", dir), 0o755)
	l.write("project/job.toml", "name = \"x\"\n[launch]\ncommand = [\"true\"]\n", 0o644)
	return l
}

func (l *lab) write(name, text string, mode fs.FileMode) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		l.t.Fatal(err)
	}
}

// as runs a program in the project's folder as the given user.
func (l *lab) as(uid uint32, program string, args ...string) (output string, code int) {
	l.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = l.project
	cmd.Env = []string{"PATH=" + filepath.Dir(l.program) + ":/usr/bin:/bin", "HOME=" + l.project, "SLURM_JOB_ID=500",
		"SLURM_JOB_NODELIST=n1"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// both users are in one group, as members of a project are
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: victim, NoSetGroups: uid == 0}}
	if uid == 0 {
		cmd.SysProcAttr = nil
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// must runs a program as as does, and requires exit code 0.
func (l *lab) must(uid uint32, program string, args ...string) string {
	l.t.Helper()
	out, code := l.as(uid, program, args...)
	if code != 0 {
		l.t.Fatalf("user %d: %s %q ended with %d:\n%s", uid, program, args, code, out)
	}
	return out
}

// calls returns the recorded calls of Slurm's commands that change something, and the other recorded lines. It clears the record.
func (l *lab) calls() string {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "calls"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.write("calls", "", 0o666)
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if !regexp.MustCompile(`^(squeue|scontrol|sinfo|sacct) `).MatchString(line) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// submit makes a run directory for job 500.
func (l *lab) submit(uid uint32) (run string) {
	l.t.Helper()
	out := l.must(uid, l.program, "submit", "job.toml")
	found := regexp.MustCompile(`run directory: (\S+)`).FindStringSubmatch(out)
	if found == nil {
		l.t.Fatalf("no run directory:\n%s", out)
	}
	l.calls()
	return filepath.Join(l.project, found[1])
}

// runsOf makes runs/ a folder of the given owner and mode.
func (l *lab) runsOf(uid int, mode fs.FileMode) {
	l.t.Helper()
	runs := filepath.Join(l.project, "runs")
	if err := errors.Join(os.MkdirAll(runs, 0o755), os.Chown(runs, uid, victim), os.Chmod(runs, mode)); err != nil {
		l.t.Fatal(err)
	}
}

// trap changes a run of the attacker so that its script and program record who runs them, and makes it readable by all.
func (l *lab) trap(run string) {
	l.t.Helper()
	for _, name := range []string{"bin/ddpbatch", "script.sh"} {
		l.must(attacker, "sh", "-c", `printf '#!/bin/sh\necho "trapped $(id -u)" >>%s/calls\n' "$1" >"$2"`, "sh", l.dir,
			filepath.Join(run, name))
	}
	l.must(attacker, "chmod", "-R", "go+rX,go-w", run)
}

// TestPlantedRunIsOnlyLookedAt lets another user plant a run that is dated in the far future, with a link for a job that the victim names,
// in a folder of runs to which all may write.
func TestPlantedRunIsOnlyLookedAt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.runsOf(0, 0o777|fs.ModeSticky)
	made := l.submit(attacker)
	planted := filepath.Join(l.project, "runs", "x-20990101-000000-0000abcd")
	l.must(attacker, "rm", filepath.Join(l.project, "runs", ".job-x-500"))
	l.must(attacker, "mv", made, planted)
	l.must(attacker, "sed", "-i", "-E", `s/"created": "[0-9]{4}/"created": "2099/`, filepath.Join(planted, "spec.json"))
	l.trap(planted)
	l.must(attacker, "ln", "-s", filepath.Base(planted), filepath.Join(l.project, "runs", ".job-a-500"))

	// no other run has job 500
	for _, command := range [][]string{
		{"resume", "500"}, {"resume", planted}, {"resume", "runs/a-500"}, {"resume", "runs/.job-a-500"},
		{"resume", filepath.Base(planted), "--set", "slurm.nodes=2"},
		{"cancel", "500"}, {"ckpt", "prune", "500"}, {"ckpt", "prune", "--force", "--keep-last", "2", planted},
		{"attempt", "begin", planted}, {"attempt", "end", "--code", "0", planted}, {"attempt", "watch", "--srun", "1", planted},
	} {
		if out, code := l.as(victim, l.program, command...); code != 2 || !strings.Contains(out, "belongs to user 4243") {
			t.Errorf("%q ended with %d, want 2 and the owner's number:\n%s", command, code, out)
		}
	}
	for _, command := range [][]string{{"status", "500"}, {"status"}, {"logs", "500"}, {"ckpt", "ls", "500"},
		{"ckpt", "prune", "--dry-run", "500"}} {
		if out, code := l.as(victim, l.program, command...); code == 2 || strings.Contains(out, "belongs to") {
			t.Errorf("%q ended with %d, and only looks:\n%s", command, code, out)
		}
	}
	if out := l.must(victim, l.program, "status", "500"); !strings.Contains(out, planted[len(l.project)+1:]) {
		t.Errorf("status does not show the run:\n%s", out)
	}
	if calls := l.calls(); calls != "" {
		t.Errorf("commands were run:\n%s", calls)
	}

	// now the victim has a run as well
	own := l.submit(victim)
	if out := l.must(victim, l.program, "status", "500"); !strings.Contains(out, own[len(l.project)+1:]) ||
		strings.Contains(out, "x-2099") {
		t.Errorf("status 500 does not show the victim's own run:\n%s", out)
	}
	l.as(victim, l.program, "resume", "500") // its job runs
	if calls := l.calls(); strings.Contains(calls, "x-2099") || strings.Contains(calls, "trapped") {
		t.Errorf("resume 500 is of another's run:\n%s", calls)
	}
}

// Prune removes checkpoints only from a folder that belongs to the caller and to which no other user can write. It does not follow another
// user's link, whatever the target is.
func TestPruneRefusesAnothersFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	folder := func(uid uint32, name string, mode fs.FileMode) string {
		path := filepath.Join(l.project, name)
		l.must(uid, "mkdir", "-p", filepath.Join(path, "step-000000000001"))
		l.must(uid, "chmod", fmt.Sprintf("%o", mode), path)
		return path
	}
	own, open, theirs := folder(victim, "own", 0o755), folder(victim, "open", 0o775), folder(attacker, "theirs", 0o755)
	link, hop := filepath.Join(l.project, "link"), filepath.Join(l.project, "hop")
	l.must(attacker, "ln", "-s", own, link)
	l.must(victim, "ln", "-s", link, hop)
	for path, says := range map[string]string{
		theirs: "belongs to the user with the id 4243", open: "chmod go-w",
		link: "a link of the user with the id 4243", hop: "a link of the user with the id 4243",
	} {
		if out, code := l.as(victim, l.program, "ckpt", "prune", "--force", "--keep-last", "2", path); code != exit.Usage ||
			!strings.Contains(out, says) {
			t.Errorf("%s: exit code %d, want 2 and %q:\n%s", path, code, says, out)
		}
	}
	l.must(victim, l.program, "ckpt", "prune", "--force", "--keep-last", "2", own)
}

// TestSwappedRunStartsNothing lets another user of a group that may write to runs/ replace the victim's run directory before the victim's
// job starts.
func TestSwappedRunStartsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owner   int
		mode    fs.FileMode
		swapped bool
	}{
		"the group writes":         {victim, 0o775, true},
		"setgid, the group writes": {victim, 0o775 | fs.ModeSetgid, true},
		"sticky":                   {victim, 0o775 | fs.ModeSticky, false},
		"of another, sticky":       {attacker, 0o777 | fs.ModeSticky, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			run := l.submit(victim)
			script := filepath.Join(l.dir, "spooled")
			text, err := os.ReadFile(filepath.Join(run, "script.sh"))
			if err != nil {
				t.Fatal(err)
			}
			l.write("spooled", string(text), 0o755)
			l.runsOf(test.owner, test.mode)
			if out, code := l.as(attacker, "sh", "-c", `mv "$1" "$1.away" && mkdir "$1" "$1/bin" && cp job.toml "$1/spec.json" &&
				touch "$1/bin/ddpbatch" && chmod 755 "$1/bin/ddpbatch"`, "sh", run); (code == 0) != test.swapped {
				t.Fatalf("the swap ended with %d:\n%s", code, out)
			}
			if test.swapped {
				l.must(attacker, "cp", "job.toml", filepath.Join(run, "script.sh"))
				l.trap(run)
			}
			out, code := l.as(victim, "bash", script)
			calls := l.calls()
			if strings.Contains(calls, "trapped") {
				t.Errorf("the attacker's program ran:\n%s", calls)
			}
			if test.swapped && (code != 2 || !strings.Contains(out, "nothing is run")) {
				t.Errorf("the script ended with %d, want 2:\n%s", code, out)
			}
			if !test.swapped && !strings.Contains(calls, "srun by 4242") {
				t.Errorf("the script did not get to srun: %d\n%s%s", code, out, calls)
			}
			if out, code := l.as(victim, l.program, "submit", "job.toml"); (code == 2) != test.swapped {
				t.Errorf("submit into these runs ended with %d:\n%s", code, out)
			}
		})
	}
}

// root can look at a user's run and cancel it. It executes nothing from the run.
func TestRootCancelsAndStartsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	run := l.submit(victim)
	for _, command := range []string{"status", "logs"} {
		if out, code := l.as(0, l.program, command, "500"); code == 2 {
			t.Errorf("%s: %s", command, out)
		}
	}
	if out, code := l.as(0, l.program, "resume", "500"); code != 2 || !strings.Contains(out, "belongs to user 4242, and this command") {
		t.Errorf("resume by root ended with %d, want 2:\n%s", code, out)
	}
	if calls := l.calls(); calls != "" {
		t.Errorf("commands were run:\n%s", calls)
	}
	out := l.must(0, l.program, "cancel", "500")
	if calls := l.calls(); !strings.Contains(calls, "scancel by 0") {
		t.Errorf("cancel did not cancel:\n%s%s", out, calls)
	}
	if strings.Contains(out, run+"/bin/ddpbatch") {
		t.Errorf("root is told to start the user's program:\n%s", out)
	}
	if out, code := l.as(attacker, l.program, "cancel", run); code == 0 {
		t.Errorf("another user cancelled it:\n%s", out)
	}
}

// If others can change a folder above runs/, submit prints one warning about it, and still submits.
func TestWritableAncestorIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := os.Chmod(l.project, 0o777); err != nil {
		t.Fatal(err)
	}
	out := l.must(victim, l.program, "submit", "job.toml")
	if n := strings.Count(out, "other users can change this folder"); n != 1 || !strings.Contains(out, "folder="+l.project+"\n") {
		t.Errorf("%d warnings, want one:\n%s", n, out)
	}
}

// TestRunsAreOursWithoutAUmask submits with a umask of 0.
func TestRunsAreOursWithoutAUmask(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(victim, "sh", "-c", `umask 0; exec "$0" submit job.toml`, l.program)
	info, err := os.Stat(filepath.Join(l.project, "runs"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("runs: %v, %v; want 0755", info.Mode(), err)
	}
}
