package torchfile

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"ddpbatch/internal/vfs"
)

const (
	maxPickle   = 64 << 20 // of data.pkl, which does not hold the tensors' bytes
	maxElements = 1 << 48  // of a tensor
	maxGathered = 1 << 30  // bytes of a storage held in memory for a tensor whose elements are not stored in order
)

// ErrNotTorch means that torch.save has not written the file, or has written it in the format of PyTorch before 1.6.
var ErrNotTorch = errors.New("not a file of torch.save")

// File is an open file. Only one goroutine may use it at a time.
type File struct {
	file    *os.File
	info    os.FileInfo // as it was when the file was opened
	members map[string]*zip.File
	tensors []Tensor
	values  map[string]json.RawMessage
	held    int64 // position of the storage that is held for a tensor whose elements are not in order
	storage []byte
}

// Tensor is one tensor of a file, or a float, as a tensor of a single element.
type Tensor struct {
	Name  string // the path: "model.fc.weight", "optimizer.state.0.exp_avg"
	DType string
	Bytes int64 // of all elements

	shape, stride []int64
	value         []byte // of a float
	at            int64  // position of its first element in the file
	span          int64  // bytes from its first element to the end of its last
	inOrder       bool   // the elements are stored in their order
}

// Shape returns the tensor's dimensions.
func (t Tensor) Shape() []int {
	shape := make([]int, len(t.shape))
	for i, n := range t.shape {
		shape[i] = int(n)
	}
	return shape
}

// Open opens a file. For a file of another kind the error is ErrNotTorch.
func Open(path string) (*File, error) {
	file, info, err := vfs.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, info: info, members: map[string]*zip.File{}, values: map[string]json.RawMessage{}}
	if err := f.read(); err != nil {
		file.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return f, nil
}

// read finds the members of the archive, and reads the pickle.
func (f *File) read() error {
	archive, err := zip.NewReader(f.file, f.info.Size())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotTorch, err)
	}
	prefix, pickle := "", (*zip.File)(nil)
	for _, member := range archive.File {
		if name, ok := strings.CutSuffix(member.Name, "data.pkl"); ok && strings.Count(name, "/") == 1 && strings.HasSuffix(name, "/") {
			prefix, pickle = name, member
		}
	}
	if pickle == nil {
		return fmt.Errorf("%w: it has no data.pkl", ErrNotTorch)
	}
	for _, member := range archive.File {
		if name, ok := strings.CutPrefix(member.Name, prefix); ok {
			f.members[name] = member
		}
	}
	if order := f.members["byteorder"]; order != nil {
		if text, err := contents(order, 16); err != nil || strings.TrimSpace(string(text)) != "little" {
			return errors.New("it was written on a machine with another byte order")
		}
	}
	data, err := contents(pickle, maxPickle)
	if err != nil {
		return err
	}
	value, err := unpickle(data)
	if err != nil {
		return err
	}
	return (&walker{f: f}).walk("", value, 0)
}

// contents returns the contents of a small member.
func contents(member *zip.File, most int64) ([]byte, error) {
	r, err := member.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", member.Name, most)
	}
	return data, err
}

// place finds a tensor's bytes: those of the member data/KEY, starting with the element at offset.
func (f *File) place(t Tensor, key string, offset int64) (Tensor, error) {
	size := sizes[t.DType]
	count, last := int64(1), int64(0)
	t.inOrder = true
	for i := len(t.shape) - 1; i >= 0; i-- {
		n, stride := t.shape[i], t.stride[i]
		t.inOrder = t.inOrder && (n <= 1 || stride == count)
		if n > 0 && count > maxElements/n || n > 1 && stride > (maxElements-last)/(n-1) {
			return t, errors.New("it is too large")
		}
		count *= n
		last += max(0, n-1) * stride
	}
	t.Bytes, t.span = count*size, (last+1)*size
	if count == 0 {
		t.span, t.inOrder = 0, true
		return t, nil
	}
	member := f.members["data/"+key]
	if member == nil {
		return t, fmt.Errorf("the file has no data/%q", key)
	}
	if member.Method != zip.Store {
		return t, errors.New("its bytes are compressed")
	}
	start, err := member.DataOffset()
	if err != nil {
		return t, err
	}
	if have := int64(member.UncompressedSize64); have < 0 || t.span > have || offset > (have-t.span)/size || start > f.info.Size()-have {
		return t, errors.New("its elements are outside of its storage")
	}
	if !t.inOrder && t.span > maxGathered {
		return t, errors.New("its elements are not stored in order, and its storage is too large")
	}
	t.at = start + offset*size
	return t, nil
}

// Tensors returns all tensors, in the order of the file.
func (f *File) Tensors() []Tensor { return f.tensors }

// Values returns all other values, as JSON, by their paths.
func (f *File) Values() map[string]json.RawMessage { return f.values }

// Read fills dst with a tensor's bytes from start on, as if its elements were stored in order.
func (f *File) Read(t Tensor, start int64, dst []byte) error {
	switch {
	case t.value != nil:
		copy(dst, t.value[start:])
		return nil
	case t.inOrder:
		_, err := f.file.ReadAt(dst, t.at+start)
		return unexpected(err)
	}
	if f.held != t.at || int64(len(f.storage)) != t.span {
		f.held, f.storage = t.at, make([]byte, t.span)
		if _, err := f.file.ReadAt(f.storage, t.at); err != nil {
			f.storage = nil
			return unexpected(err)
		}
	}
	size := sizes[t.DType]
	for at := int64(0); at < int64(len(dst)); at += size {
		from := t.element((start+at)/size) * size
		copy(dst[at:at+size], f.storage[from:from+size])
	}
	return nil
}

// element returns the position of the nth element, relative to the first one.
func (t Tensor) element(nth int64) (at int64) {
	for i := len(t.shape) - 1; i >= 0; i-- {
		at += nth % t.shape[i] * t.stride[i]
		nth /= t.shape[i]
	}
	return at
}

// unexpected returns the error for a file that has become shorter.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Unchanged returns an error if the file was written to since it was opened.
func (f *File) Unchanged() error {
	info, err := f.file.Stat()
	if err == nil && (info.Size() != f.info.Size() || !info.ModTime().Equal(f.info.ModTime())) {
		err = fmt.Errorf("%s changed while it was being read", f.file.Name())
	}
	return err
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
