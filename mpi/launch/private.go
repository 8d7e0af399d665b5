package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// privateName begins the names of private folders.
const privateName = "ddpbatch-agent-"

// privateAge is how old a private folder is before it may be taken for one that is left behind: its agent locks it as soon as it is there.
const privateAge = time.Minute

// privateParents are where private folders may be, the best first: on this node, and in memory. Heartbeat files are changed once a second by
// every rank, which the run directory's file server need not hear.
func privateParents() []string { return []string{"/dev/shm", os.TempDir()} }

// private is a folder of an agent's own on its node. It is locked as long as the agent lives. Safe for concurrent use.
type private struct {
	path string

	lockPath  func(path string) (*os.File, error) // lockFolder
	removeAll func(path string) error             // os.RemoveAll

	mu   sync.Mutex
	lock *os.File // the folder itself, flock(2); nil once it is removed
}

// newPrivate makes a folder in the first of parents where that can be done, and removes those that dead agents of this host left there.
func newPrivate(parents []string, host string) (*private, error) {
	var errs []error
	for _, parent := range parents {
		p, err := privateIn(parent, host)
		if err == nil {
			sweepPrivate(parent, host)
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func privateIn(parent, host string) (*private, error) {
	path, err := os.MkdirTemp(parent, privateName+"*"+ofHost(host))
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &private{path: path, lockPath: lockFolder, removeAll: os.RemoveAll, lock: lock}, nil
}

// ofHost ends the names of a host's folders: where parent is on a file server, a lock may hold on its own host alone.
func ofHost(host string) string { return "@" + host }

// lockFolder opens and locks a folder that nobody else has locked. Workers do not inherit it (O_CLOEXEC).
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
}

// sweepPrivate removes what this host's agents that were killed have left in parent. What cannot be removed is another user's, or is tried
// again.
func sweepPrivate(parent, host string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, privateName) || !strings.HasSuffix(name, ofHost(host)) {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < privateAge {
			continue
		}
		path := filepath.Join(parent, name)
		if lock, err := lockFolder(path); err == nil {
			_ = os.RemoveAll(path)
			lock.Close()
		}
	}
}

// restore makes the folder anew where somebody has removed it, and tells whether that was so.
func (p *private) restore() (gone bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil {
		return false, nil
	}
	if err := os.Mkdir(p.path, 0o700); errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return true, err
	}
	lock, err := p.lockPath(p.path)
	if err != nil { // another agent would sweep it
		return true, errors.Join(err, p.removeAll(p.path)) // the next look makes it anew
	}
	p.lock.Close() // of what is gone
	p.lock = lock
	return true, nil
}

// remove removes the folder with all that is in it.
func (p *private) remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := errors.Join(p.removeAll(p.path), p.lock.Close())
	p.lock = nil
	return err
}

// makePrivate makes the round's private folder where something is to lie in it: heartbeat files, and error files where there are neither a
// run directory nor --log-dir. It returns what removes it; without one, only what these files would tell is not known.
func (r *round) makePrivate() (remove func()) {
	if r.cfg.HangAfter <= 0 && (r.cfg.RunDir != nil || r.m.logDir != nil) {
		return func() {}
	}
	host, err := os.Hostname() // of the machine: r.cfg's may be pretended
	if err == nil {
		r.private, err = newPrivate(privateParents(), host)
	}
	if err != nil {
		r.cfg.Log.Warn("the workers have no heartbeat files, and no error files where there is no folder for logs", "error", err)
		return func() {}
	}
	return func() {
		if err := finished("remove the private folder", r.private.remove); err != nil {
			r.cfg.Log.Warn("the folder of the workers' heartbeat and error files is left behind", "error", err)
		}
	}
}

// privateFile is a worker's file in the private folder; "" where there is none.
func (r *round) privateFile(p Place, name string) string {
	if r.private == nil {
		return ""
	}
	return filepath.Join(r.private.path, strconv.Itoa(p.Rank)+"."+name)
}
