package vfs

import (
	"cmp"
	"io/fs"
)

// injectedFile is an open file of an Injector.
type injectedFile struct {
	in       *Injector
	file     File
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

// Close closes the file beneath even when the plan makes it fail, as close(2) does.
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
