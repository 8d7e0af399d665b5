package vfstest

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"ddpbatch/internal/vfs"
)

// View shows a Mem as one client of an NFS server sees it (nfs(5), "data and metadata coherence"). Several Views of one Mem are several
// nodes.
//
//   - Close-to-open: what one client writes is visible to others after its Sync or Close, but never in a file that is already open.
//   - Between Hold and Refresh, names, listings and sizes come from caches: what others created since then does not exist, and what they
//     removed still exists, until it is opened (ESTALE). Even then the server decides about a create, a mkdir and the target of a rename;
//     if it refuses, the client learns that the name exists.
//   - A file that loses its last name while it is open reads ESTALE.
//   - LoseReplies: an operation that was performed, whose reply was lost, and which the client repeated, returns the result of the second
//     one: ENOENT, or EEXIST for mkdir.
//
// The same seed and the same calls give the same results.
type View struct {
	mem  *Mem
	mu   sync.Mutex
	rng  *rand.Rand
	lose int                       // per cent of replies
	held map[string]rememberedName // by cleaned absolute name; nil: nothing is cached
}

var _ vfs.FS = (*View)(nil)

// rememberedName is what a client remembers of a name.
type rememberedName struct {
	node *node
	info fs.FileInfo
}

// NewView returns a client with empty caches that loses no replies.
func NewView(m *Mem, seed uint64) *View {
	return &View{mem: m, rng: rand.New(rand.NewPCG(seed, 0))}
}

// Hold makes the client remember all names as they are now, and ask the server no more.
func (v *View) Hold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mem.mu.Lock()
	defer v.mem.mu.Unlock()
	v.held = map[string]rememberedName{}
	v.remember("/", v.mem.root)
}

func (v *View) remember(name string, n *node) {
	v.held[name] = rememberedName{n, n.info(filepath.Base(name))}
	for base, child := range n.entries {
		v.remember(filepath.Join(name, base), child)
	}
}

// Refresh makes the client forget what it remembers.
func (v *View) Refresh() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = nil
}

// LoseReplies makes the given percentage of successful renames, removals and mkdirs look as if they had been sent twice.
func (v *View) LoseReplies(percent int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lose = percent
}

func clean(name string) string { return filepath.Clean("/" + name) }

// unseen reports whether the client's cache lacks a name.
func (v *View) unseen(name string) bool {
	if v.held == nil {
		return false
	}
	_, ok := v.held[clean(name)]
	return !ok
}

// change runs an operation that changes names. needs are names that must exist for this client; again is the result of the repeated
// request. made is the name that the client knows afterwards, and gone the one that it forgets; both may be "".
func (v *View) change(op Op, again error, made, gone string, needs []string, run func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range needs {
		if v.unseen(name) {
			return op.error(syscall.ENOENT)
		}
	}
	if err := run(); err != nil {
		v.taken(made, err)
		return err
	}
	if v.held != nil {
		v.relearn(made, gone)
	}
	if v.rng.IntN(100) < v.lose {
		return op.error(again)
	}
	return nil
}

// taken makes the client ask for a name that it did not know, and that exists according to the server.
func (v *View) taken(name string, err error) {
	if v.unseen(name) && errors.Is(err, fs.ErrExist) {
		v.relearn(name, "")
	}
}

func (v *View) relearn(made, gone string) {
	v.mem.mu.Lock()
	defer v.mem.mu.Unlock()
	if gone != "" {
		maps.DeleteFunc(v.held, func(name string, _ rememberedName) bool { return within(name, clean(gone)) })
	}
	if made == "" {
		return
	}
	if n, err := v.mem.find("", made); err == nil {
		v.remember(clean(made), n)
	}
}

// within reports whether a cleaned name is dir or is below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func (v *View) Rename(oldName, newName string) error {
	needs := []string{oldName, filepath.Dir(clean(newName))}
	return v.change(Op{Kind: "rename", Path: oldName, To: newName}, syscall.ENOENT, newName, oldName, needs,
		func() error { return v.mem.Rename(oldName, newName) })
}

func (v *View) Remove(name string) error {
	return v.change(Op{Kind: "remove", Path: name}, syscall.ENOENT, "", name, []string{name},
		func() error { return v.mem.Remove(name) })
}

func (v *View) RemoveDir(name string) error {
	return v.change(Op{Kind: "rmdir", Path: name}, syscall.ENOENT, "", name, []string{name},
		func() error { return v.mem.RemoveDir(name) })
}

func (v *View) Mkdir(name string) error {
	return v.change(Op{Kind: "mkdir", Path: name}, syscall.EEXIST, name, "", []string{filepath.Dir(clean(name))},
		func() error { return v.mem.Mkdir(name) })
}

// Create asks the server, which decides O_EXCL. It is the one operation that NFS can repeat safely, by its verifier.
func (v *View) Create(name string) (vfs.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unseen(filepath.Dir(clean(name))) {
		return nil, pathError("open", name, syscall.ENOENT)
	}
	f, err := v.mem.Create(name)
	if err != nil {
		v.taken(name, err)
		return nil, err
	}
	if v.held != nil {
		v.relearn(name, "")
	}
	return &viewWriter{File: f}, nil
}

func (v *View) Open(name string) (vfs.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unseen(name) {
		return nil, pathError("open", name, syscall.ENOENT)
	}
	v.mem.mu.Lock()
	defer v.mem.mu.Unlock()
	n, err := v.lookup(name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, pathError("open", name, errFolder)
	}
	if n.gone {
		return nil, pathError("open", name, syscall.ESTALE)
	}
	// A new node, which is not linked anywhere, holds what this open file sees for as long as it exists.
	seen := &node{data: bytes.Clone(n.data)}
	return &viewReader{memFile: &memFile{fs: v.mem, node: seen, name: name}, live: n}, nil
}

// lookup finds a name by the client's file handle, or at the server.
func (v *View) lookup(name string) (*node, error) {
	if v.held != nil {
		return v.held[clean(name)].node, nil
	}
	return v.mem.find("open", name)
}

func (v *View) ReadDir(name string) ([]fs.DirEntry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held == nil {
		return v.mem.ReadDir(name)
	}
	if v.unseen(name) {
		return nil, pathError("readdir", name, syscall.ENOENT)
	}
	if !v.held[clean(name)].info.IsDir() {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	var list []fs.DirEntry
	for path, h := range v.held {
		if path != "/" && filepath.Dir(path) == clean(name) {
			list = append(list, fs.FileInfoToDirEntry(h.info))
		}
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

func (v *View) Stat(name string) (fs.FileInfo, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held == nil {
		return v.mem.Stat(name)
	}
	if v.unseen(name) {
		return nil, pathError("stat", name, syscall.ENOENT)
	}
	return v.held[clean(name)].info, nil
}

func (v *View) SyncDir(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unseen(name) {
		return pathError("sync", name, syscall.ENOENT)
	}
	return v.mem.SyncDir(name)
}

func (v *View) Space(name string) (vfs.Space, error) {
	space, err := v.mem.Space(name)
	space.Type = "nfs"
	return space, err
}

// viewWriter keeps what is written until Sync or Close, as a client's page cache does.
type viewWriter struct {
	vfs.File
	cache []byte
}

func (f *viewWriter) Write(p []byte) (int, error) {
	if _, err := f.File.Stat(); err != nil {
		return 0, err // closed
	}
	f.cache = append(f.cache, p...)
	return len(p), nil
}

func (f *viewWriter) flush() error {
	n, err := f.File.Write(f.cache)
	f.cache = f.cache[n:]
	return err
}

func (f *viewWriter) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

// Stat flushes first, as does a client with dirty pages.
func (f *viewWriter) Stat() (fs.FileInfo, error) {
	if err := f.flush(); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *viewWriter) Close() error {
	if err := f.flush(); err != nil {
		_ = f.File.Close()
		return err
	}
	return f.File.Close()
}

// viewReader reads what the file held when it was opened.
type viewReader struct {
	*memFile
	live *node
}

func (f *viewReader) ReadAt(p []byte, off int64) (int, error) {
	if err := f.stale("read"); err != nil {
		return 0, err
	}
	return f.memFile.ReadAt(p, off)
}

func (f *viewReader) Stat() (fs.FileInfo, error) {
	if err := f.stale("stat"); err != nil {
		return nil, err
	}
	return f.memFile.Stat()
}

func (f *viewReader) stale(op string) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.live.gone {
		return pathError(op, f.name, syscall.ESTALE)
	}
	return nil
}
