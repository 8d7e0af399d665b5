package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// ErrCrashed is what every operation answers after a simulated crash.
var ErrCrashed = errors.New("simulated crash")

// Op is one operation on a file system, as an Injector sees it.
type Op struct {
	Kind string // create, open, read, write, sync, close, stat, rename, remove, rmdir, mkdir, readdir, syncdir
	Path string
	To   string // rename: the new name
	Size int    // read, write: bytes
}

// String is the operation as a line of a log.
func (o Op) String() string {
	switch o.Kind {
	case "rename":
		return fmt.Sprintf("rename %s -> %s", o.Path, o.To)
	case "read", "write":
		return fmt.Sprintf("%s %s %d bytes", o.Kind, o.Path, o.Size)
	}
	return o.Kind + " " + o.Path
}

// Fault is what an Injector does to an operation. The zero value lets it pass.
type Fault struct {
	Err   error
	Short int // write: so many bytes go through before Err
}

// Injector passes operations on to another file system, and makes those fail that its plan
// chooses. Closing a file that was opened for reading is not counted.
type Injector struct {
	fs   FS
	plan func(k int, op Op) Fault
	mu   sync.Mutex
	log  []Op
}

var _ FS = (*Injector)(nil)

// NewInjector wraps base. The plan is asked before the k-th operation, counted from 1; nil lets
// everything pass.
func NewInjector(base FS, plan func(k int, op Op) Fault) *Injector {
	if plan == nil {
		plan = func(int, Op) Fault { return Fault{} }
	}
	return &Injector{fs: base, plan: plan}
}

// FailAt is a plan: operation k alone fails.
func FailAt(k int, err error) func(int, Op) Fault {
	return func(i int, _ Op) Fault {
		if i == k {
			return Fault{Err: err}
		}
		return Fault{}
	}
}

// CrashAfter is a plan: k operations pass, every later one fails with ErrCrashed.
func CrashAfter(k int) func(int, Op) Fault {
	return func(i int, _ Op) Fault {
		if i > k {
			return Fault{Err: ErrCrashed}
		}
		return Fault{}
	}
}

// Log returns the operations asked for so far, those that failed included.
func (in *Injector) Log() []Op {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]Op(nil), in.log...)
}

func (in *Injector) step(op Op) Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.log = append(in.log, op)
	return in.plan(len(in.log), op)
}

// do runs one operation, unless the plan makes it fail.
func (in *Injector) do(op Op, run func() error) error {
	if fault := in.step(op); fault.Err != nil {
		if op.Kind == "rename" {
			return linkError(op.Path, op.To, fault.Err)
		}
		return pathError(op.Kind, op.Path, fault.Err)
	}
	return run()
}

func (in *Injector) Create(name string) (f File, err error) {
	err = in.do(Op{Kind: "create", Path: name}, func() error { f, err = in.fs.Create(name); return err })
	return in.wrap(f, name, true), err
}

func (in *Injector) Open(name string) (f File, err error) {
	err = in.do(Op{Kind: "open", Path: name}, func() error { f, err = in.fs.Open(name); return err })
	return in.wrap(f, name, false), err
}

func (in *Injector) wrap(f File, name string, writable bool) File {
	if f == nil {
		return nil
	}
	return &injectedFile{in: in, file: f, name: name, writable: writable}
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
