package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// File is an open file whose header is valid. Its methods are safe for concurrent use.
type File struct {
	path     string
	f        io.ReaderAt
	stat     func() (fs.FileInfo, error)
	opened   fs.FileInfo // the file's state when it was opened
	close    func() error
	begin    int64 // offset of the data
	infos    []Info
	metadata Metadata
}

// Open opens a file and checks its header, but reads none of its data. The caller closes it.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	return f, nil
}

func open(path string) (*File, error) {
	f, err := vfs.OS{}.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var file *File
	if err == nil {
		file, err = parse(f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	file.path, file.stat, file.opened, file.close = path, f.Stat, info, f.Close
	return file, nil
}

// parse parses the header of a file of size bytes.
func parse(f io.ReaderAt, size int64) (*File, error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, invalidf("it has %d bytes, but the length of its header alone takes 8", size)
	}
	if _, err := f.ReadAt(length[:], 0); err != nil {
		return nil, readFailed("the length of its header", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader && ofTorchSave(length):
		return nil, invalidf(`it looks like a file of torch.save; "Weights from elsewhere" in docs/models.md ` +
			"says how to write one of safetensors")
	case n > maxHeader:
		return nil, invalidf("it claims a header of %d bytes, at most %d are allowed", n, maxHeader)
	case int64(n) > size-8:
		return nil, invalidf("a header of %d bytes does not fit into its %d", n, size)
	}
	header, err := readHeader(f, int(n))
	if err != nil {
		return nil, err
	}
	begin := 8 + int64(n)
	infos, metadata, err := parseHeader(header, size-begin)
	if err != nil {
		return nil, err
	}
	return &File{f: f, begin: begin, infos: infos, metadata: metadata}, nil
}

// ofTorchSave reports whether a file begins like those of torch.save: with a zip archive, or before PyTorch 1.6 with a pickle.
func ofTorchSave(begin [8]byte) bool {
	return string(begin[:4]) == "PK\x03\x04" || begin[0] == 0x80 && 2 <= begin[1] && begin[1] <= 5
}

// readHeader reads the n bytes of a header, in parts: a sparse file may have a long header that takes no room on disk. Zeros are not JSON.
func readHeader(f io.ReaderAt, n int) ([]byte, error) {
	const part = 1 << 20
	header := make([]byte, 0, min(n, part))
	for at := 0; at < n; at = len(header) {
		header = slices.Grow(header, min(part, n-at))[:at+min(part, n-at)]
		if _, err := f.ReadAt(header[at:], 8+int64(at)); err != nil {
			return nil, readFailed("its header", err)
		}
		if i := bytes.IndexByte(header[at:], 0); i >= 0 {
			return nil, invalidf("byte %d of the header is zero", at+i)
		}
	}
	return header, nil
}

// readFailed returns the error of a read within the length that the file had.
func readFailed(what string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file became shorter while it was read: %w", what, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// readError says what was being read; an error of the file system names the path itself.
func readError(path string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("read safetensors: %w", err)
	}
	return fmt.Errorf("read safetensors: %s: %w", path, err)
}

// Tensors returns the file's tensors in the order of their data. The caller must not modify them.
func (f *File) Tensors() []Info { return f.infos }

// Metadata returns the file's metadata, or nil if it has none. The caller must not modify it.
func (f *File) Metadata() Metadata { return f.metadata }

// Read fills dst with the bytes of a tensor of this file from start on, of any type. It panics if they are not within the tensor.
func (f *File) Read(t Info, start int64, dst []byte) error {
	if start < 0 || start > t.Bytes || int64(len(dst)) > t.Bytes-start {
		panic("safetensors: bytes are not within the tensor")
	}
	if len(dst) == 0 {
		return nil
	}
	if _, err := f.f.ReadAt(dst, f.begin+t.Start+start); err != nil {
		return readError(f.path, readFailed("tensor "+quoted(t.Name), err))
	}
	return nil
}

// Reader returns a reader of the bytes of a tensor of this file. It can be used as long as the file is open.
func (f *File) Reader(t Info) io.ReaderAt { return tensorReader{f, t} }

type tensorReader struct {
	f *File
	t Info
}

func (r tensorReader) ReadAt(dst []byte, start int64) (int, error) {
	n := min(int64(len(dst)), max(r.t.Bytes-start, 0))
	if n > 0 {
		if err := r.f.Read(r.t, start, dst[:n]); err != nil {
			return 0, err
		}
	}
	if n < int64(len(dst)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Unchanged returns an error if somebody has written to the file since Open: the data that was read may then be of two states of the file.
// It compares length and time of modification. Writes from another node of a network file system in the last seconds may show late (nfs(5),
// acregmin), and so may a process's writes through a mapping (mmap(2)). If another file took the name, the open file is still the old one.
func (f *File) Unchanged() error {
	now, err := f.stat()
	if err != nil {
		return readError(f.path, err)
	}
	if now.Size() != f.opened.Size() || !now.ModTime().Equal(f.opened.ModTime()) {
		return readError(f.path, errors.New("it was changed while it was read; read it again once it is complete"))
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// ReadFile reads all tensors of a file, in the order of their data, and its metadata. It refuses a file with a type that
// checkpoints do not have, before it reads any data, and a file that is written to while it is read (see [File.Unchanged]).
func ReadFile(path string) ([]checkpoint.Tensor, Metadata, error) {
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	tensors, err := f.readAll()
	return tensors, f.metadata, err
}

func (f *File) readAll() ([]checkpoint.Tensor, error) {
	for _, t := range f.infos {
		if err := t.Known(); err != nil {
			return nil, readError(f.path, err)
		}
	}
	var tensors []checkpoint.Tensor
	for _, t := range f.infos {
		data := make([]byte, t.Bytes)
		if err := f.Read(t, 0, data); err != nil {
			return nil, err
		}
		tensors = append(tensors, checkpoint.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: data})
	}
	return tensors, f.Unchanged()
}

// Known returns an error if a checkpoint cannot hold the tensor's type.
func (t Info) Known() error {
	if t.DType == "" {
		return fmt.Errorf("tensor %s is of the type %s, which checkpoints do not have; convert it to F32, F16 or BF16 first",
			quoted(t.Name), t.Type)
	}
	return nil
}
