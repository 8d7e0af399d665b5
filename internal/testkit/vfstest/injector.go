package vfstest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"ddpbatch/internal/vfs"
)

// ErrCrashed is returned by every operation after a simulated crash.
var ErrCrashed = errors.New("simulated crash")

// Op is one operation on a file system, as an Injector sees it.
type Op struct {
	Kind string // create, open, read, write, sync, close, stat, rename, remove, rmdir, mkdir, readdir, syncdir, prealloc, space
	Path string
	To   string // rename: the new name
	Size int    // read, write, prealloc: bytes
}

// String formats the operation as a line of a log.
func (o Op) String() string {
	switch o.Kind {
	case "rename":
		return fmt.Sprintf("rename %s -> %s", o.Path, o.To)
	case "read", "write", "prealloc":
		return fmt.Sprintf("%s %s %d bytes", o.Kind, o.Path, o.Size)
	}
	return o.Kind + " " + o.Path
}

// Fault is what an Injector does to an operation. The zero value lets it pass.
type Fault struct {
	// Wait, unless nil, delays the operation until it is closed, as for a process that is stopped (SIGSTOP, a node that was cut off) and
	// continues in the middle of its work. Other operations continue meanwhile.
	Wait <-chan struct{}
	// Err, unless nil, is returned, and the operation does not happen.
	Err   error
	Short int // write: number of bytes written before Err
	// AfterErr, unless nil, is returned although the operation happens, as if the reply of a file server were lost. If the operation itself
	// fails, its own error is returned.
	AfterErr error
}

// Injector passes operations on to another file system, and makes those fail that its plan chooses. It does not count StartWriteback, or
// the closing of a file that was opened for reading.
type Injector struct {
	fs   vfs.FS
	plan func(k int, op Op) Fault
	log  *[]Op // also of everything within it
	// turn holds one element while plan and log are in use. It is not a mutex, because in a bubble of testing/synctest time passes while a
	// goroutine waits for a channel.
	turn chan struct{}
}

var _ vfs.FS = (*Injector)(nil)

// NewInjector wraps base. The plan is called before the k-th operation, counted from 1, by one goroutine at a time. It may sleep. A nil
// plan lets everything pass.
func NewInjector(base vfs.FS, plan func(k int, op Op) Fault) *Injector {
	if plan == nil {
		plan = func(int, Op) Fault { return Fault{} }
	}
	return &Injector{fs: base, plan: plan, log: new([]Op), turn: make(chan struct{}, 1)}
}

// FailAt returns a plan by which only operation k fails.
func FailAt(k int, err error) func(int, Op) Fault {
	return func(i int, _ Op) Fault {
		if i == k {
			return Fault{Err: err}
		}
		return Fault{}
	}
}

// CrashAfter returns a plan by which k operations pass, and every later one fails with ErrCrashed.
func CrashAfter(k int) func(int, Op) Fault {
	return func(i int, _ Op) Fault {
		if i > k {
			return Fault{Err: ErrCrashed}
		}
		return Fault{}
	}
}

// Log returns the operations so far, including those that failed.
func (in *Injector) Log() []Op {
	in.turn <- struct{}{}
	defer func() { <-in.turn }()
	return append([]Op(nil), *in.log...)
}

// step calls the plan, and waits if it says so.
func (in *Injector) step(op Op) Fault {
	fault := in.ask(op)
	if fault.Wait != nil {
		<-fault.Wait
	}
	return fault
}

func (in *Injector) ask(op Op) Fault {
	in.turn <- struct{}{}
	defer func() { <-in.turn }()
	*in.log = append(*in.log, op)
	return in.plan(len(*in.log), op)
}

// do runs one operation as the plan says.
func (in *Injector) do(op Op, run func() error) error {
	fault := in.step(op)
	if fault.Err != nil {
		return op.error(fault.Err)
	}
	if err := run(); err != nil || fault.AfterErr == nil {
		return err
	}
	return op.error(fault.AfterErr)
}

func (o Op) error(err error) error {
	if o.Kind == "rename" {
		return linkError(o.Path, o.To, err)
	}
	return pathError(o.Kind, o.Path, err)
}

func (in *Injector) Create(name string) (f vfs.File, err error) {
	err = in.do(Op{Kind: "create", Path: name}, func() error { f, err = in.fs.Create(name); return err })
	return in.opened(f, err, name, true)
}

func (in *Injector) Open(name string) (f vfs.File, err error) {
	err = in.do(Op{Kind: "open", Path: name}, func() error { f, err = in.fs.Open(name); return err })
	return in.opened(f, err, name, false)
}

// opened wraps a file, or closes the handle of a file whose opening must look like a failure.
func (in *Injector) opened(f vfs.File, err error, name string, writable bool) (vfs.File, error) {
	if err == nil {
		return &injectedFile{in: in, file: f, name: name, writable: writable}, nil
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return nil, err
}

func (in *Injector) Rename(oldName, newName string) error {
	return in.do(Op{Kind: "rename", Path: oldName, To: newName}, func() error { return in.fs.Rename(oldName, newName) })
}

func (in *Injector) Remove(name string) error {
	return in.do(Op{Kind: "remove", Path: name}, func() error { return in.fs.Remove(name) })
}

func (in *Injector) RemoveDir(name string) error {
	return in.do(Op{Kind: "rmdir", Path: name}, func() error { return in.fs.RemoveDir(name) })
}

func (in *Injector) Mkdir(name string) error {
	return in.do(Op{Kind: "mkdir", Path: name}, func() error { return in.fs.Mkdir(name) })
}

func (in *Injector) SyncDir(name string) error {
	return in.do(Op{Kind: "syncdir", Path: name}, func() error { return in.fs.SyncDir(name) })
}

func (in *Injector) ReadDir(name string) (list []fs.DirEntry, err error) {
	err = in.do(Op{Kind: "readdir", Path: name}, func() error { list, err = in.fs.ReadDir(name); return err })
	return list, err
}

func (in *Injector) Stat(name string) (info fs.FileInfo, err error) {
	err = in.do(Op{Kind: "stat", Path: name}, func() error { info, err = in.fs.Stat(name); return err })
	return info, err
}

func (in *Injector) Space(name string) (space vfs.Space, err error) {
	err = in.do(Op{Kind: "space", Path: name}, func() error { space, err = in.fs.Space(name); return err })
	return space, err
}

// PrivateDir passes the request on, and counts as a mkdir.
func (in *Injector) PrivateDir(name string) error {
	return in.do(Op{Kind: "mkdir", Path: name}, func() error { return vfs.PrivateDir(in.fs, name) })
}

// Within returns an Injector whose operations are chosen, counted and recorded with those of in.
func (in *Injector) Within(dir string) vfs.FS {
	return &Injector{fs: vfs.Within(in.fs, dir), plan: in.plan, log: in.log, turn: in.turn}
}

// injectedFile is an open file of an Injector.
type injectedFile struct {
	in       *Injector
	file     vfs.File
	name     string
	writable bool
}

func (f *injectedFile) Write(p []byte) (int, error) {
	op := Op{Kind: "write", Path: f.name, Size: len(p)}
	fault := f.in.step(op)
	through, answer := len(p), fault.AfterErr
	if fault.Err != nil {
		through, answer = min(fault.Short, len(p)), fault.Err
	}
	n := 0
	if through > 0 {
		var err error
		if n, err = f.file.Write(p[:through]); err != nil {
			return n, err
		}
	}
	if answer != nil {
		return n, op.error(answer)
	}
	return n, nil
}

func (f *injectedFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.in.do(Op{Kind: "read", Path: f.name, Size: len(p)}, func() error { n, err = f.file.ReadAt(p, off); return err })
	return n, err
}

func (f *injectedFile) Preallocate(size int64) error {
	op := Op{Kind: "prealloc", Path: f.name, Size: int(size)}
	return f.in.do(op, func() error { return f.file.Preallocate(size) })
}

func (f *injectedFile) StartWriteback(offset, n int64) { f.file.StartWriteback(offset, n) }

func (f *injectedFile) Sync() error {
	return f.in.do(Op{Kind: "sync", Path: f.name}, f.file.Sync)
}

func (f *injectedFile) Stat() (info fs.FileInfo, err error) {
	err = f.in.do(Op{Kind: "stat", Path: f.name}, func() error { info, err = f.file.Stat(); return err })
	return info, err
}

// Close closes the underlying file even if the plan makes it fail, as close(2) does.
func (f *injectedFile) Close() error {
	if !f.writable {
		return f.file.Close()
	}
	op := Op{Kind: "close", Path: f.name}
	fault := f.in.step(op)
	if err := f.file.Close(); err != nil {
		return err
	}
	if answer := cmp.Or(fault.Err, fault.AfterErr); answer != nil {
		return op.error(answer)
	}
	return nil
}
