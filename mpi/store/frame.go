package store

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	frameHead = 4                        // the length of what follows
	maxFrame  = 2*MaxValue + MaxKey + 64 // a CompareSet of the largest key and values
	minFrame  = 8 + 1                    // id and kind, of request and reply alike
	keptFrame = 64 << 10                 // a larger buffer is not kept for the next frame
)

// beginFrame returns a buffer for a frame of about size bytes, with room for its length.
func beginFrame(size int) []byte { return make([]byte, frameHead, frameHead+minFrame+size) }

// endFrame fills in the length.
func endFrame(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-frameHead))
	return frame
}

// readFrame reads what follows a frame's length, into buf where that is large enough.
// At the end of the stream between two frames the error is io.EOF itself.
func readFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	head, err := r.Peek(frameHead)
	if err != nil {
		if len(head) > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size < minFrame || size > maxFrame {
		return nil, fmt.Errorf("%w: a frame of %d bytes", errMalformed, size)
	}
	r.Discard(frameHead) // what was peeked is buffered
	if int(size) > cap(buf) {
		buf = make([]byte, size)
	}
	if _, err := io.ReadFull(r, buf[:size]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf[:size], nil
}

func appendBytes[T string | []byte](buf []byte, b T) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(b))), b...)
}

// fields takes a frame apart. After the first field that is not there, all
// are zero and short is set.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) take(n uint64) []byte {
	if f.short = f.short || n > uint64(len(f.rest)); f.short {
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) uint32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) uint64() uint64 {
	if b := f.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// count takes the number of what follows, each of at least size bytes.
func (f *fields) count(size uint64) (uint32, error) {
	n := f.uint32()
	if n > MaxRequestKeys || uint64(n)*size > uint64(len(f.rest)) {
		return 0, fmt.Errorf("%w: it has no room for %d keys", errMalformed, n)
	}
	return n, nil
}

func (f *fields) bytes() []byte { return f.take(uint64(f.uint32())) }

// end tells whether there was exactly what was asked for.
func (f *fields) end() error {
	switch {
	case f.short:
		return fmt.Errorf("%w: it ends in the middle of a field", errMalformed)
	case len(f.rest) > 0:
		return fmt.Errorf("%w: %d bytes are left over", errMalformed, len(f.rest))
	}
	return nil
}
