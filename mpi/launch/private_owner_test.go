package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/blame"
)

// Two users without accounts.
const (
	victim   = 4242
	attacker = 4243
)

// as makes a command of another user.
func as(uid uint32, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// TestPrivateFolderOfAnotherUser: the system removes an agent's private folder, and another user makes one of its name, with links to what
// the agent's user alone may write to.
func TestPrivateFolderOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	testkit.EnterTemp(t)
	dir := t.TempDir()
	shared, own := filepath.Join(dir, "shm"), filepath.Join(dir, "home")
	for _, folder := range []string{shared, own} {
		must(t, os.Mkdir(folder, 0o700))
	}
	for path, mode := range map[string]fs.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, shared: 0o777 | fs.ModeSticky} {
		must(t, os.Chmod(path, mode))
	}
	must(t, os.Chown(own, victim, victim))
	kept := filepath.Join(own, "kept")
	must(t, as(victim, "/bin/sh", "-c", `echo '{"message": "mine"}' >"$0"; touch -d @1000 "$0"`, kept).Run())

	agent := as(victim, "/proc/self/exe", "private", shared)
	agent.Env = append(agent.Env, workerSwitch+"=1")
	var log testkit.Journal
	agent.Stderr = &log
	in, err := agent.StdinPipe()
	must(t, err)
	out, err := agent.StdoutPipe()
	must(t, err)
	must(t, agent.Start())
	defer agent.Wait()
	defer in.Close()
	said := bufio.NewScanner(out)
	var paths []string // of the folder, and of its files as workers know them
	for len(paths) < 3 && said.Scan() {
		paths = append(paths, said.Text())
	}
	if len(paths) < 3 {
		t.Fatalf("the agent said %q and %s", paths, log.String())
	}
	folder := paths[0]
	if filepath.Dir(folder) != shared { // it is removed below, by root
		t.Fatalf("the folder is %s", folder)
	}
	if names, err := as(attacker, "/bin/ls", folder).CombinedOutput(); err == nil {
		t.Errorf("another user reads what is in the folder: %s", names)
	}

	must(t, os.RemoveAll(folder)) // as systemd-logind
	take := as(attacker, "/bin/sh", "-ec",
		`mkdir -m 777 "$0"; for name in 0.error.json 0.heartbeat; do ln -s "$1" "$0/$name"; done`, folder, kept)
	if said, err := take.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	in.Close()
	var rest []string
	for said.Scan() {
		rest = append(rest, said.Text())
	}
	if err := agent.Wait(); err != nil {
		t.Errorf("the agent: %v, and said %s", err, log.String())
	}
	if got := strings.Join(rest, ", "); got != "heartbeat: false, error file: false, removed: <nil>" {
		t.Errorf("it saw %s", got)
	}
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "somebody else has made one of its name") {
		t.Errorf("it warned %q", lines)
	}
	text, err := os.ReadFile(kept)
	must(t, err)
	info, err := os.Stat(kept)
	must(t, err)
	if string(text) != "{\"message\": \"mine\"}\n" || info.ModTime().Unix() != 1000 {
		t.Errorf("the user's file is %q, changed at %v", text, info.ModTime())
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 2 {
		t.Errorf("in the other user's folder is %v, %v", entries, err)
	}
}

// usePrivate is the agent, and its worker, of TestPrivateFolderOfAnotherUser. The folder is taken when its input ends.
func usePrivate(parent string) {
	c := AgentConfig{HangAfter: time.Hour, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	p, err := newPrivate([]string{parent}, "n1")
	if err != nil {
		panic(err)
	}
	r := &round{cfg: c, private: p}
	errorFile, beat := r.privateFile(Place{}, "error.json"), r.heartbeatOf(Place{})
	fmt.Printf("%s\n%s\n%s\n", p.path, p.workersPath(errorFile), p.workersPath(beat))
	bufio.NewScanner(os.Stdin).Scan()
	h := newHeartbeats(r, []*worker{{logs: logs{heartbeat: beat}}})
	for range 3 {
		h.keepFolder()
		// as a worker may
		_ = exec.Command("/bin/sh", "-c", `echo theirs >"$0"; touch "$1"`, p.workersPath(errorFile), p.workersPath(beat)).Run()
	}
	_, err = blame.ReadErrorFile(errorFile)
	beats := !changed(h.paths, h.seen)[0].IsZero()
	fmt.Printf("heartbeat: %t\nerror file: %t\nremoved: %v\n", beats, !errors.Is(err, fs.ErrNotExist), p.remove())
}

// TestRunWhosePrivateFolderIsTaken: the run goes on by its workers' output, and warns once.
func TestRunWhosePrivateFolderIsTaken(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	kept := filepath.Join(t.TempDir(), "kept")
	must(t, os.WriteFile(kept, []byte("mine"), 0o600))
	must(t, os.Chtimes(kept, time.Unix(1000, 0), time.Unix(1000, 0)))
	// Root removes nothing but the agent's folder, whatever the variable says. The agent may be faster, and make it anew.
	name := privateParents()[0] + "/" + privateName
	w := hanging(t, 5*time.Second, speak+`folder=${DDPBATCH_HEARTBEAT_FILE%/*/*}; echo $folder
case $folder in `+name+`[0-9]*) ;; *) exit 9; esac
until setpriv --reuid 4243 --regid 4243 --clear-groups mkdir -m 777 $folder 2>/dev/null; do rm -rf $folder; done
ln -s `+kept+` $folder/0.heartbeat
touch "$DDPBATCH_HEARTBEAT_FILE" 2>/dev/null && echo touched
speak 80`)
	v := w.agree(w.run())
	out := w.logOf("n1", 0, "out")
	folder, _, _ := strings.Cut(out, "\n")
	if !strings.HasPrefix(folder, name) {
		t.Fatalf("the worker said %q", out)
	}
	defer os.RemoveAll(folder)
	if v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	if n := strings.Count(w.log.String(), "somebody else has made one of its name"); n != 1 {
		t.Errorf("it warned %d times: %s", n, w.log.String())
	}
	if strings.Contains(out, "touched") {
		t.Errorf("the worker said %q", out)
	}
	if info, err := os.Stat(kept); err != nil || info.ModTime().Unix() != 1000 {
		t.Errorf("the user's file: %v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(folder, "0.heartbeat")); err != nil {
		t.Errorf("what the other user has made is gone: %v", err)
	}
}

// TestSweepPrivateOfOthers: an agent removes what other agents of its user left, and nothing that another user made or may have put there.
func TestSweepPrivateOfOthers(t *testing.T) {
	parent := t.TempDir()
	for name, row := range map[string]struct {
		uid  int // 0: this one
		mode fs.FileMode
		left bool
	}{
		"own":              {mode: 0o700},
		"open to others":   {mode: 0o777, left: true},
		"of another user":  {uid: attacker, mode: 0o700, left: true},
		"of another, open": {uid: attacker, mode: 0o777, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			if row.uid != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give files to another user")
			}
			path := filepath.Join(parent, privateName+name+"@n1")
			file := filepath.Join(path, "file")
			must(t, os.Mkdir(path, 0o700))
			must(t, os.WriteFile(file, nil, 0o600))
			must(t, os.Chmod(path, row.mode))
			if row.uid != 0 {
				must(t, os.Chown(path, row.uid, row.uid))
			}
			long := time.Now().Add(-2 * privateAge)
			must(t, os.Chtimes(path, long, long))
			sweepPrivate(parent, "n1")
			if _, err := os.Stat(file); (err == nil) != row.left {
				t.Errorf("%v, want it to be left: %t", err, row.left)
			}
		})
	}
}
