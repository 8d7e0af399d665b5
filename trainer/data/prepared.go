package data

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/crc32c"
	"ddpbatch/internal/vfs"
)

// prepared is data in the form in which it is used, in memory or in a mapped file.
type prepared struct {
	Classes int     // as in Spec
	Arrays  []array // their meaning depends on the kind of data
	file    *mapping
}

// array is an array of little-endian numbers, row-major.
type array struct {
	kind  byte // of the elements: one of kindBytes, kindFloats, kindInts
	dims  []int
	bytes []byte
}

// Kinds of elements, with NumPy's names.
const (
	kindBytes  = 'B' // unsigned
	kindFloats = 'f' // 32 bits
	kindInts   = 'i' // 32 bits, signed
)

// newArray returns the array of v with the dimensions dims. It shares v's memory.
func newArray[T number](v []T, dims ...int) array {
	kind := byte(kindInts)
	if _, ok := any(v).([]float32); ok {
		kind = kindFloats
	}
	return array{kind: kind, dims: dims, bytes: bytesOf(v)}
}

// errStale marks prepared data that must be prepared again: it is damaged, of another version or from another source.
var errStale = errors.New("prepared data is out of date or damaged")

// length returns the number of bytes of an array, or -1 if there can be no such array.
func length(kind byte, dims []int) int {
	n := 4
	if kind == kindBytes {
		n = 1
	}
	for _, d := range dims {
		if d < 0 || d > 0 && n > math.MaxInt/d {
			return -1
		}
		n *= d
	}
	return n
}

// openPrepared maps the file and checks all of it. The error is errStale if the file is not what it should be,
// os.ErrNotExist if it does not exist, vfs.ErrExposed if others may have written it.
func openPrepared(at cacheFile, src source) (*prepared, error) {
	f, info, err := at.open()
	if err != nil {
		return nil, fmt.Errorf("use prepared data: %w", err)
	}
	defer f.Close()
	m, err := mapFile(f, info)
	if err != nil {
		return nil, err
	}
	p, from, err := decodePrepared(m.bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.path(), err)
	}
	if from != src {
		return nil, fmt.Errorf("%s: %w: its source is %+v", at.path(), errStale, from)
	}
	p.file = m
	return p, nil
}

// A file of prepared data is, little-endian:
//
//	0   8 bytes  magic "ddpdata\n"
//	8   uint32   version, 1
//	12  uint32   length of the header
//	16  uint32   CRC-32C of the header
//	20  uint32   CRC-32C of everything after the header
//	24  header   JSON: the source, the arrays' kinds and dimensions
//	             for each array: zeros up to a multiple of 64, then the array
const (
	preparedMagic   = "ddpdata\n"
	preparedVersion = 1
	preparedFixed   = 24
	preparedAlign   = 64 // a cache line

	maxPreparedHeader = 64 << 10
	maxPreparedArrays = 8
)

// preparedHeader is the JSON in the file.
type preparedHeader struct {
	Source  source          `json:"source"`
	Classes int             `json:"classes"`
	Arrays  []preparedArray `json:"arrays"`
}

type preparedArray struct {
	Kind string `json:"kind"`
	Dims []int  `json:"dims"`
}

func encodePrepared(w io.Writer, src source, p *prepared) error {
	h := preparedHeader{Source: src, Classes: p.Classes}
	for _, a := range p.Arrays {
		h.Arrays = append(h.Arrays, preparedArray{string(a.kind), a.dims})
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxPreparedHeader {
		return fmt.Errorf("the header has %d bytes, at most %d are accepted: is the path too long?", len(text), maxPreparedHeader)
	}
	var pieces [][]byte
	at := preparedFixed + len(text)
	sum := uint32(0)
	for _, a := range p.Arrays {
		gap := make([]byte, -at&(preparedAlign-1))
		pieces = append(pieces, gap, a.bytes)
		at += len(gap) + len(a.bytes)
		sum = crc32c.Update(crc32c.Update(sum, gap), a.bytes)
	}
	head := []byte(preparedMagic)
	head = binary.LittleEndian.AppendUint32(head, preparedVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, crc32c.Checksum(text))
	head = binary.LittleEndian.AppendUint32(head, sum)
	for _, piece := range append([][]byte{append(head, text...)}, pieces...) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// decodePrepared parses a file; the arrays are views of it. Every error is errStale.
func decodePrepared(b []byte) (*prepared, source, error) {
	stale := func(what string) (*prepared, source, error) {
		return nil, source{}, fmt.Errorf("%w: %s", errStale, what)
	}
	if len(b) < preparedFixed || string(b[:8]) != preparedMagic {
		return stale("it does not begin as such files do")
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	if word(8) != preparedVersion {
		return stale(fmt.Sprintf("version %d", word(8)))
	}
	size := int64(word(12))
	if size > maxPreparedHeader || size > int64(len(b)-preparedFixed) {
		return stale("the header is cut short")
	}
	text, rest := b[preparedFixed:preparedFixed+int(size)], b[preparedFixed+int(size):]
	if crc32c.Checksum(text) != word(16) || crc32c.Checksum(rest) != word(20) {
		return stale("a checksum is wrong")
	}
	var h preparedHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return stale(err.Error())
	}
	p := &prepared{Classes: h.Classes}
	at := preparedFixed + int(size)
	if len(h.Arrays) > maxPreparedArrays {
		return stale("too many arrays")
	}
	for _, a := range h.Arrays {
		if a.Kind != string(kindBytes) && a.Kind != string(kindFloats) && a.Kind != string(kindInts) {
			return stale("an array is of an unknown kind")
		}
		at += -at & (preparedAlign - 1)
		n := length(a.Kind[0], a.Dims)
		if n < 0 || at > len(b) || n > len(b)-at {
			return stale("an array goes beyond the end")
		}
		p.Arrays = append(p.Arrays, array{a.Kind[0], a.Dims, b[at : at+n]})
		at += n
	}
	if at != len(b) {
		return stale("it goes on after the last array")
	}
	return p, h.Source, nil
}

// mapping is a file mapped into memory, read-only. Its pages are those of the kernel's cache, so that all
// ranks of a node hold them once. It is unmapped some time after the last pointer to the mapping is
// gone: code that reads bytes must keep the mapping alive until it has finished (runtime.KeepAlive).
//
// Shortening the file meanwhile kills the process with SIGBUS (mmap(2)).
type mapping struct{ bytes []byte }

func openMapping(path string) (*mapping, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapFile(f, info)
}

const _ int = 1 << 40 // an int has 64 bits: sizes of files are ints

func mapFile(f *os.File, info os.FileInfo) (*mapping, error) {
	size := int(info.Size())
	if size == 0 { // mmap refuses an empty file
		return &mapping{}, nil
	}
	// Private: file systems in user space may refuse shared mappings. Pages that are not written are shared all the same.
	bytes, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", f.Name(), err)
	}
	m := &mapping{bytes}
	runtime.AddCleanup(m, func(bytes []byte) {
		// It was mapped as a whole and once, so this cannot fail.
		_ = unix.Munmap(bytes)
	}, bytes)
	return m, nil
}

// openRegular opens a file for reading. It must be a regular file.
func openRegular(path string) (*os.File, os.FileInfo, error) { return plain(vfs.OpenRegular(path)) }

// plain replaces the error of opening what is not a regular file by a plainer one.
func plain(f *os.File, info os.FileInfo, err error) (*os.File, os.FileInfo, error) {
	var p *os.PathError
	if errors.Is(err, vfs.ErrNotRegular) && errors.As(err, &p) {
		err = fmt.Errorf("%s is not a regular file", p.Path)
	}
	return f, info, err
}
