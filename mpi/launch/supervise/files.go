package supervise

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"

	"golang.org/x/sys/unix"
)

// workerFiles are the files of one worker in one round, by this process's paths; "": none.
type workerFiles struct {
	output.Paths
	errorFile string // TORCHELASTIC_ERROR_FILE
	flight    string // DDPBATCH_FLIGHT_FILE
	heartbeat string // DDPBATCH_HEARTBEAT_FILE
	stacks    string // see stacks
}

// logsOf returns the paths of a worker's files: below --log-dir, or in the run directory if there is one.
func (r *round) logsOf(n rendezvous.RankNumbers) (l workerFiles, err error) {
	c := r.cfg
	if c.RunDir != nil {
		path := func(stream string) string { return c.RunDir.LogPath(c.Attempt, c.Host, n.Rank, stream) }
		l = workerFiles{Paths: output.Paths{Out: path("out"), Err: path("err")}, errorFile: path("error.json"),
			flight: path("flight.jsonl")}
	}
	if r.agent.logDir != nil {
		l.Paths, l.errorFile, err = r.agent.logDir.Worker(r.layout.Round, n.LocalRank)
	}
	l.heartbeat, l.stacks = r.heartbeatOf(n), r.stacksPath(n, l)
	if l.errorFile == "" {
		l.errorFile = r.privateFile(n, "error.json") // this file is read before the folder is removed; stacks must stay for people
	}
	return l, err
}

// filtered returns the paths of the files for lines of all of this agent's workers that the filters match.
func (r *round) filtered() (output.Paths, error) {
	c := r.cfg
	switch {
	case len(c.Output.OutFilters)+len(c.Output.ErrFilters) == 0:
		return output.Paths{}, nil
	case r.agent.logDir != nil:
		return r.agent.logDir.Filtered(r.layout.Round)
	case c.RunDir == nil:
		return output.Paths{}, nil
	}
	path := func(stream string) string {
		return strings.TrimSuffix(c.RunDir.LogPath(c.Attempt, c.Host, 0, stream), "0."+stream) + "filtered." + stream
	}
	return output.Paths{Out: path("out"), Err: path("err")}, nil
}

// openOutput opens the destinations of the workers' output in this round.
func (r *round) openOutput() (*output.Mux, error) {
	paths, err := r.filtered()
	if err != nil {
		return nil, err
	}
	c := r.cfg
	if c.Output.PrefixSeveral && r.layout.World == 1 {
		c.Output.Prefix = ""
	}
	return output.NewMux(c.Output, output.To{Stdout: c.Stdout, Stderr: c.Stderr, Filtered: paths}, c.Log)
}

// privateName is the prefix of the names of private folders.
const privateName = "ddpbatch-agent-"

// privateAge is the age from which on an unlocked private folder counts as left behind: an agent locks its folder right after making it.
const privateAge = time.Minute

// privateParents are the folders in which private folders may be made, the best first: on this node, and in memory. Every rank
// changes its heartbeat file once a second, which should not burden the run directory's file server.
func privateParents() []string { return []string{"/dev/shm", os.TempDir()} }

// privateFolder is an agent's own folder on its node. It is locked for as long as the agent lives. It is safe for concurrent use.
//
// All users see its name. Once the system has removed it (systemd-logind does so at a user's last logout), any user can make
// another folder with that name. So the files are in a folder within it, whose name only the agent and its workers know: a worker's
// paths never lead to another user's file. The agent itself uses the descriptor that it holds.
type privateFolder struct {
	path   string
	secret string // name of the inner folder

	lockPath  func(path string) (*os.File, error) // lockFolder
	removeAll func(path string) error             // os.RemoveAll

	mu    sync.Mutex
	lock  *os.File // the folder itself, locked by flock(2), with one descriptor number while it is open; nil once it is removed
	names []string // of the files in the inner folder
}

// errTaken means that the folder was removed, and another user or program has made one with its name.
var errTaken = errors.New("another folder has its name")

// newPrivate makes a folder in the first of parents in which it can, and removes those that ended agents of this host have left there.
func newPrivate(parents []string, host string) (*privateFolder, error) {
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

func privateIn(parent, host string) (*privateFolder, error) {
	path, err := os.MkdirTemp(parent, privateName+"*"+ofHost(host))
	if err != nil {
		return nil, err
	}
	p := &privateFolder{path: path, secret: rand.Text(), lockPath: lockFolder, removeAll: os.RemoveAll}
	p.lock, err = p.open()
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ofHost is the suffix of the names of a host's folders: if parent is on a file server, a lock may hold only on its own host.
func ofHost(host string) string { return "@" + host }

// open locks the folder that was just made, and makes its contents. If that fails, it removes the folder.
func (p *privateFolder) open() (*os.File, error) {
	lock, err := p.lockPath(p.path)
	if err != nil { // another agent would remove it
		return nil, errors.Join(err, os.Remove(p.path))
	}
	if _, err := p.fill(lock); err != nil {
		return nil, errors.Join(err, removeFolder(lock, p.path, p.removeAll), lock.Close())
	}
	return lock, nil
}

// fill makes the inner folder and its files, unless that folder exists.
func (p *privateFolder) fill(folder *os.File) (missing bool, err error) {
	within := filepath.Join(descriptorPath(folder), p.secret)
	if err := os.Mkdir(within, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		return true, err
	}
	for _, name := range p.names {
		err = errors.Join(err, makeUnused(filepath.Join(within, name)))
	}
	return true, err
}

// lockFolder opens and locks a folder of this user's that is not locked yet. Workers do not inherit the descriptor (O_CLOEXEC).
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = vfs.CheckOwner(path, info)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s: other users may read it (mode %04o)", path, info.Mode().Perm())
	}
	if err == nil {
		err = os.NewSyscallError("flock "+path, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// descriptorPath returns a path to an open folder, whatever its name leads to by now.
func descriptorPath(folder *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", folder.Fd()) }

// removeFolder removes the contents of an open folder, and the folder itself if it is still at that path.
func removeFolder(folder *os.File, path string, removeAll func(string) error) error {
	entries, err := os.ReadDir(descriptorPath(folder))
	if errors.Is(err, fs.ErrNotExist) { // the folder was removed
		err = nil
	}
	for _, entry := range entries {
		err = errors.Join(err, removeAll(filepath.Join(descriptorPath(folder), entry.Name())))
	}
	if there, _ := isAt(folder, path); there {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// isAt reports whether an open folder is at that path.
func isAt(folder *os.File, path string) (bool, error) {
	now, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	info, err := folder.Stat()
	return err == nil && os.SameFile(now, info), err
}

// sweepPrivate removes what killed agents of this user on this host have left in parent. The next agent tries again to remove what
// cannot be removed now.
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
			_ = removeFolder(lock, path, os.RemoveAll)
			lock.Close()
		}
	}
}

// restore makes the folder, or the inner one, anew if it was removed, and reports whether it was. The error is errTaken if another
// user or program has made one with its name.
func (p *privateFolder) restore() (gone bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil {
		return false, nil
	}
	switch there, err := isAt(p.lock, p.path); {
	case there:
		return p.fill(p.lock)
	case err == nil:
		return true, errTaken
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	if err := os.Mkdir(p.path, 0o700); err != nil {
		return true, err
	}
	lock, err := p.open()
	if err != nil {
		return true, err // the next look tries again
	}
	defer lock.Close()
	// The new folder takes over the descriptor number, so that paths that descriptorPath has returned lead to it.
	return true, os.NewSyscallError("dup3", unix.Dup3(int(lock.Fd()), int(p.lock.Fd()), unix.O_CLOEXEC))
}

// remove removes the folder and its contents.
func (p *privateFolder) remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := errors.Join(removeFolder(p.lock, p.path, p.removeAll), p.lock.Close())
	p.lock = nil
	return err
}

// file makes an unused file and returns its path for this process, which is valid until the folder is removed.
func (p *privateFolder) file(name string) (path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = append(p.names, name)
	path = filepath.Join(descriptorPath(p.lock), p.secret, name)
	return path, makeUnused(path)
}

// workersPath returns a worker's path of the file that is at path for this process.
func (p *privateFolder) workersPath(path string) string {
	if p == nil {
		return path
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, ours := strings.CutPrefix(path, descriptorPath(p.lock)+"/"); ours {
		return filepath.Join(p.path, name)
	}
	return path
}

// makeUnused makes an empty file. Its time shows that no worker has changed it yet: see heartbeats.read, and blame.ReadErrorFile.
func makeUnused(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(path, unused, unused))
}

// makePrivate makes the round's private folder if files need it: heartbeat files, and error files without another folder. It
// returns a function that removes the folder. If the folder cannot be made, only the information in these files is missing.
func (r *round) makePrivate() (remove func()) {
	logs := r.cfg.RunDir != nil
	if r.agent.logDir != nil {
		logs = r.agent.logDir.HasFiles()
	}
	if r.cfg.HangAfter <= 0 && logs {
		return func() {}
	}
	host, err := os.Hostname() // of the machine: r.cfg.Host may be a simulated node
	if err == nil {
		r.private, err = newPrivate(privateParents(), host)
	}
	if err != nil {
		r.cfg.Log.Warn("could not make a folder for the workers' heartbeat files, and error files without a log folder", "error", err)
		return func() {}
	}
	return func() {
		if err := DoFS("remove the private folder", r.private.remove); err != nil {
			r.cfg.Log.Warn("could not remove the folder of the workers' heartbeat and error files", "error", err)
		}
	}
}

// privateFile makes a worker's file in the private folder, and returns its path, or "" if there is no such folder.
func (r *round) privateFile(n rendezvous.RankNumbers, name string) string {
	if r.private == nil {
		return ""
	}
	path, err := r.private.file(strconv.Itoa(n.Rank) + "." + name)
	if err != nil { // the worker may still be able to make it
		r.cfg.Log.Warn("could not make a worker's heartbeat or error file", "rank", n.Rank, "error", err)
	}
	return path
}

// answerLimit is how long a file system may take to answer. If it hangs, a call may take hours, and no signal ends it.
const answerLimit = time.Minute

// CallFS returns the results of do. If do takes longer than answerLimit, CallFS returns an error that says so. do then goes on in
// the background, and must not change anything that the caller reads.
func CallFS[T any](what string, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		value, err := do()
		got <- answer{value, err}
	}()
	a, came := pause.Await(got, answerLimit)
	if !came {
		a.err = fmt.Errorf("%s: the file system has not answered for %v", what, answerLimit)
	}
	return a.value, a.err
}

// DoFS is CallFS for a function without a result.
func DoFS(what string, do func() error) error {
	_, err := CallFS(what, func() (struct{}, error) { return struct{}{}, do() })
	return err
}
