package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// What a killed agent left is removed by the next one on the node, and what a living one, or one of another node, has is not.
func TestPrivateFolders(t *testing.T) {
	parent := t.TempDir()
	parents := []string{filepath.Join(parent, "missing"), parent}
	living, err := newPrivate(parents, "n1")
	must(t, err)
	dead := filepath.Join(parent, privateName+"1@n1")
	elsewhere := filepath.Join(parent, privateName+"1@n2") // its lock may not be seen from here
	foreign := filepath.Join(parent, "somebody")
	fresh := filepath.Join(parent, privateName+"2@n1") // about to be locked
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
	must(t, os.RemoveAll(living.path)) // by somebody else
	must(t, living.remove())
	if left, err := os.ReadDir(parent); err != nil || len(left) != 3 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := newPrivate(parents[:1], "n1"); err == nil {
		t.Error("a folder that is not there was taken")
	}
}

// systemd-logind, or somebody else, empties /dev/shm: the folder is made anew, locked as before, and told of once.
func TestPrivateFolderThatIsRemoved(t *testing.T) {
	parent := t.TempDir()
	p, err := newPrivate([]string{parent}, "n1")
	must(t, err)
	var log testkit.Journal
	path, err := p.file("0.heartbeat")
	must(t, err)
	beat := p.workersPath(path)
	h := &heartbeats{folder: p, log: log.Logger(), paths: []string{path}, seen: make([]time.Time, 1)}
	look := func(want bool) {
		t.Helper()
		testkit.Eventually(t, "the look", func() bool { return h.look()[0].IsZero() != want })
	}
	for _, removed := range []string{p.path, filepath.Dir(beat), p.path} {
		look(false) // it is there, and nobody has changed it
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

// A folder that was made anew and cannot be locked would be another agent's to sweep: it goes, and is made once more.
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

// A folder that cannot be removed in time is left behind.
func TestPrivateFolderOnAFileSystemThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Journal
		r := &round{m: &meeting{}, cfg: AgentConfig{HangAfter: time.Hour, Log: log.Logger()}}
		remove := r.makePrivate()
		hung := make(chan struct{})
		r.private.removeAll = func(path string) error { <-hung; return os.RemoveAll(path) }
		begin := time.Now()
		remove()
		if took := time.Since(begin); took != answerLimit {
			t.Errorf("it was waited for for %v", took)
		}
		if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "left behind") || !strings.Contains(lines[0], "has not answered") {
			t.Errorf("it told %q", lines)
		}
		close(hung)
		synctest.Wait()
		if _, err := os.Stat(r.private.path); err == nil {
			t.Error("it is there")
		}
	})
}
