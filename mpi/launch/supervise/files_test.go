package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"
)

// The next agent on a node removes the folder of a killed agent, but not that of a living agent or of an agent of another node.
func TestFoldersOfKilledAgentsAreRemoved(t *testing.T) {
	parent := t.TempDir()
	parents := []string{filepath.Join(parent, "missing"), parent}
	living, err := newPrivate(parents, "n1")
	must(t, err)
	dead := filepath.Join(parent, privateName+"1@n1")
	elsewhere := filepath.Join(parent, privateName+"1@n2") // its lock may not be visible on this node
	foreign := filepath.Join(parent, "somebody")
	fresh := filepath.Join(parent, privateName+"2@n1") // new, and about to be locked
	long := time.Now().Add(-2 * privateAge)
	for _, path := range []string{dead, elsewhere, foreign, fresh} {
		must(t, os.Mkdir(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, "0.heartbeat"), nil, 0o600))
	}
	for _, path := range []string{dead, elsewhere, foreign, living.path} {
		must(t, os.Chtimes(path, long, long))
	}
	next, err := newPrivate(parents, "n1")
	must(t, err)
	for path, want := range map[string]bool{dead: false, elsewhere: true, foreign: true, fresh: true, living.path: true, next.path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it to be there: %t", path, err, want)
		}
	}
	if filepath.Dir(next.path) != parent {
		t.Errorf("it is at %s", next.path)
	}
	must(t, next.remove())
	must(t, os.RemoveAll(living.path)) // as another program might
	must(t, living.remove())
	if left, err := os.ReadDir(parent); err != nil || len(left) != 3 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := newPrivate(parents[:1], "n1"); err == nil {
		t.Error("a folder that is not there was taken")
	}
}

// If systemd-logind or another program empties /dev/shm, the agent makes its folder anew and locks it as before. It logs that once.
func TestPrivateFolderThatIsRemoved(t *testing.T) {
	parent := t.TempDir()
	p, err := newPrivate([]string{parent}, "n1")
	must(t, err)
	var log testkit.Journal
	path, err := p.file("0.heartbeat")
	must(t, err)
	beat := p.workersPath(path)
	h := &heartbeats{folder: p, log: log.Logger(), paths: []string{path}, steps: true, seen: make([]heartbeat, 1)}
	look := func(want bool) {
		t.Helper()
		testkit.Eventually(t, "the look", func() bool { return h.look()[0].at.IsZero() != want })
	}
	for _, removed := range []string{p.path, filepath.Dir(beat), p.path} {
		look(false) // the file exists, and has not been changed
		must(t, os.Chtimes(beat, time.Time{}, time.Now()))
		look(true)
		must(t, os.RemoveAll(removed))
		look(false)
		testkit.Eventually(t, "the file again", func() bool {
			h.look()
			_, err := os.Stat(beat)
			return err == nil
		})
	}
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "removed") {
		t.Errorf("it told %q", lines)
	}
	long := time.Now().Add(-2 * privateAge)
	must(t, os.Chtimes(p.path, long, long))
	sweepPrivate(parent, "n1")
	if _, err := os.Stat(p.path); err != nil {
		t.Errorf("another agent took it for one that is left behind: %v", err)
	}
	must(t, p.remove())
	if again, err := p.restore(); again || err != nil {
		t.Errorf("it is made anew after its end: %t, %v", again, err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// If a folder that was made anew cannot be locked, the agent removes it and tries again later. Another agent would sweep it otherwise.
func TestPrivateFolderThatCannotBeLocked(t *testing.T) {
	p, err := newPrivate([]string{t.TempDir()}, "n1")
	must(t, err)
	fault := errors.New("too many open files")
	must(t, os.RemoveAll(p.path))
	p.lockPath = func(string) (*os.File, error) { return nil, fault }
	for range 2 {
		if gone, err := p.restore(); !gone || !errors.Is(err, fault) {
			t.Errorf("it is restored: %t, %v", gone, err)
		}
		if _, err := os.Stat(p.path); err == nil {
			t.Error("it is there without a lock")
		}
	}
	p.lockPath = lockFolder
	if gone, err := p.restore(); !gone || err != nil {
		t.Errorf("it is restored: %t, %v", gone, err)
	}
	if _, err := lockFolder(p.path); err == nil {
		t.Error("it is not locked")
	}
	must(t, p.remove())
}

// If the removal of a folder hangs, the agent stops waiting for it after answerLimit.
func TestPrivateFolderOnAFileSystemThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Journal
		r := &round{agent: &Agent{}, cfg: Config{Limits: Limits{HangAfter: time.Hour}, Log: log.Logger()}}
		remove := r.makePrivate()
		hung := make(chan struct{})
		r.private.removeAll = func(path string) error { <-hung; return os.RemoveAll(path) }
		begin := time.Now()
		remove()
		if took := time.Since(begin); took != answerLimit {
			t.Errorf("it was waited for for %v", took)
		}
		if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "could not remove the folder") ||
			!strings.Contains(lines[0], "has not answered") {
			t.Errorf("it told %q", lines)
		}
		close(hung)
		synctest.Wait()
		if _, err := os.Stat(r.private.path); err == nil {
			t.Error("it is there")
		}
	})
}

// A worker gets an error file even without log files (--log-dir /dev/null), so that the first failure is reported.
func TestErrorFileIsMadeWithoutLogs(t *testing.T) {
	logs, err := output.NewLogDir(os.DevNull, "x")
	must(t, err)
	for name, dir := range map[string]*rundir.Dir{"run directory": newRunDir(t), "none": nil} {
		r := &round{agent: &Agent{logDir: logs}, cfg: one(dir), layout: &rendezvous.Layout{}}
		remove := r.makePrivate()
		files, err := r.logsOf(rendezvous.RankNumbers{})
		if err != nil || files.errorFile == "" || files.Paths != (output.Paths{}) {
			t.Errorf("%s: the worker has the files %+v, %v", name, files, err)
		}
		remove()
	}
}

// An agent waits only for answerLimit for a file system that hangs.
func TestFileSystemThatDoesNotAnswer(t *testing.T) {
	for name, wait := range map[string]func(s *Supervisor) error{
		"the stop file": func(s *Supervisor) error { s.awaitWrites(); return errors.New("has not answered") },
		"the verdict":   func(s *Supervisor) error { return s.Record(s.cfg.doneOutcome(1)) },
		"reading, to a result": func(s *Supervisor) error {
			_, err := CallFS("read", func() (int, error) { s.writes.Wait(); return 1, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Supervisor{cfg: one(nil)}
				hung := make(chan struct{})
				s.writes.Go(func() { <-hung })
				begin := time.Now()
				err := wait(s)
				if err == nil || !strings.Contains(err.Error(), "has not answered") || time.Since(begin) != answerLimit {
					t.Errorf("waited %v: %v", time.Since(begin), err)
				}
				close(hung)
			})
		})
	}
}

func TestAnsweredIsWhatWasDone(t *testing.T) {
	fault := errors.New("a fault")
	if v, err := CallFS("x", func() (int, error) { return 7, fault }); v != 7 || err != fault {
		t.Errorf("%d, %v", v, err)
	}
}

// If a check for the stop file hangs, no other check follows, and the round is not delayed.
func TestStopFileOnAFileSystemThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		var looks atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if path, found := awaitOne(ctx, nil, []string{"stop"}, func(string) bool { looks.Add(1); <-hung; return true }); found ||
			looks.Load() != 1 {
			t.Errorf("%q was found, after %d looks", path, looks.Load())
		}
		close(hung)
		synctest.Wait()
		if path, found := awaitOne(t.Context(), nil, []string{"", "a", "b"},
			func(path string) bool { return looks.Add(1) > 8 && path == "b" }); !found || path != "b" {
			t.Errorf("%q was found: %t", path, found)
		}
	})
}

// Workers without a handler for the warning are checked less and less often.
func TestWarnsAgainEverLessOften(t *testing.T) {
	for most, fewer := range map[time.Duration]int{warnSeldom: 300, warnRarely: 25} {
		pause, all := warnAgain, time.Duration(0)
		looks := 0
		for ; all < time.Hour; looks++ {
			all += pause
			pause = lessOften(pause, most)
		}
		if looks > fewer || pause != most {
			t.Errorf("%d looks in an hour, the last after %v", looks, pause)
		}
	}
}

// as returns a command that runs as another user.
func as(uid uint32, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// If the system removes an agent's private folder, and another user makes one with its name, with links to a file to which only the agent's
// user may write, the agent warns once, and does not use the folder or change that file.
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

	agent := as(victim, "/proc/self/exe")
	agent.Env = append(agent.Env, privateSwitch+"="+shared)
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
	var paths []string // the folder's, and those of its files as workers get them
	for len(paths) < 3 && said.Scan() {
		paths = append(paths, said.Text())
	}
	if len(paths) < 3 {
		t.Fatalf("the agent said %q and %s", paths, log.String())
	}
	folder := paths[0]
	if filepath.Dir(folder) != shared { // root removes it below
		t.Fatalf("the folder is %s", folder)
	}
	if names, err := as(attacker, "/bin/ls", folder).CombinedOutput(); err == nil {
		t.Errorf("another user reads what is in the folder: %s", names)
	}

	must(t, os.RemoveAll(folder)) // as systemd-logind does
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
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "another user or program has made one with its name") {
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

// usePrivate acts as the agent of TestPrivateFolderOfAnotherUser and as its worker. When standard input ends, the folder has been replaced.
func usePrivate(parent string) {
	c := Config{Limits: Limits{HangAfter: time.Hour}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	p, err := newPrivate([]string{parent}, "n1")
	if err != nil {
		panic(err)
	}
	r := &round{cfg: c, private: p}
	errorFile, beat := r.privateFile(rendezvous.RankNumbers{}, "error.json"), r.heartbeatOf(rendezvous.RankNumbers{})
	fmt.Printf("%s\n%s\n%s\n", p.path, p.workersPath(errorFile), p.workersPath(beat))
	bufio.NewScanner(os.Stdin).Scan()
	h := newHeartbeats(r, []*worker{{files: workerFiles{heartbeat: beat}}})
	for range 3 {
		h.keepFolder()
		// as a worker might
		_ = exec.Command("/bin/sh", "-c", `echo theirs >"$0"; touch "$1"`, p.workersPath(errorFile), p.workersPath(beat)).Run()
	}
	_, err = blame.ReadErrorFile(errorFile)
	beats := !h.read(h.seen)[0].at.IsZero()
	fmt.Printf("heartbeat: %t\nerror file: %t\nremoved: %v\n", beats, !errors.Is(err, fs.ErrNotExist), p.remove())
}

// An agent removes the folders that other agents of its user left, but nothing that another user made or may have put there.
func TestSweepPrivateOfOthers(t *testing.T) {
	parent := t.TempDir()
	for name, row := range map[string]struct {
		uid  int // 0: this user
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

// The IDs of two users without accounts.
const (
	victim   = 4242
	attacker = 4243
)
