package vfs

import "io/fs"

// injectedFile is an open file of an Injector.
type injectedFile struct {
	in       *Injector
	file     File
	name     string
	writable bool
}

func (f *injectedFile) Write(p []byte) (int, error) {
	fault := f.in.step(Op{Kind: "write", Path: f.name, Size: len(p)})
	if fault.Err == nil {
		return f.file.Write(p)
	}
	n := 0
	if fault.Short > 0 {
		var err error
		if n, err = f.file.Write(p[:min(fault.Short, len(p))]); err != nil {
			return n, err
		}
	}
	return n, pathError("write", f.name, fault.Err)
}

func (f *injectedFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.in.do(Op{Kind: "read", Path: f.name, Size: len(p)}, func() error { n, err = f.file.ReadAt(p, off); return err })
	return n, err
}

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
	fault := f.in.step(Op{Kind: "close", Path: f.name})
	err := f.file.Close()
	if fault.Err != nil {
		return pathError("close", f.name, fault.Err)
	}
	return err
}
