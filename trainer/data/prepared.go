package data

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// prepared is data in the form that it is used in, in memory or in a mapped file.
type prepared struct {
	Classes int     // as in Spec
	Arrays  []array // what they are is for the kind of data to know
	file    *mapping
}

// array is one of little-endian numbers, row-major.
type array struct {
	kind  byte // of the elements: one of kindBytes, kindFloats, kindInts
	dims  []int
	bytes []byte
}

// Kinds of elements, by the names that numpy has for them.
const (
	kindBytes  = 'B' // unsigned
	kindFloats = 'f' // 32 bits
	kindInts   = 'i' // 32 bits, signed
)

// newArray is the array of v in dims dimensions. It shares v's memory.
func newArray[T number](v []T, dims ...int) array {
	kind := byte(kindInts)
	if _, ok := any(v).([]float32); ok {
		kind = kindFloats
	}
	return array{kind: kind, dims: dims, bytes: bytesOf(v)}
}

// errStale marks prepared data that must be prepared anew: damaged, of another version or from another source.
var errStale = errors.New("prepared data is out of date or damaged")

// length is the number of bytes that elements of a kind in some dimensions take, -1 if there is no such array.
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

// writePrepared puts p into the file, in place of what was there. The caller holds the lock. What a
// power cut leaves is found out by its sum.
func writePrepared(at cached, src source, p *prepared) error {
	return replaceFile(at, func(w io.Writer) error { return encodePrepared(w, src, p) })
}

// openPrepared maps the file and checks all of it. The error is errStale where the file is not what it should be,
// os.ErrNotExist where there is none, vfs.ErrExposed where others may have written it.
func openPrepared(at cached, src source) (*prepared, error) {
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
