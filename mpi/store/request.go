package store

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// errMalformed means that a peer has sent a malformed message. It ends the connection.
var errMalformed = errors.New("malformed message")

type op byte

const (
	opSet        op = iota + 1 // key, value
	opGet                      // key
	opAdd                      // key, delta (8 bytes)
	opCompareSet               // key, expected, value
	opWait                     // number of keys, keys
	opDelete                   // key
	opCancel                   // nothing; the id is that of the request to cancel
	opAppend                   // key, value
	opCheck                    // number of keys, keys
	opNumKeys                  // prefix
	opList                     // prefix
	opMultiGet                 // number of keys, keys
	opMultiSet                 // number of keys, each key with its value
)

// request is a client's message: id (8 bytes), operation (1 byte), and the operation's fields. Keys and values are preceded by
// their lengths (4 bytes). All integers are big-endian.
type request struct {
	id       uint64
	op       op
	key      string   // or prefix
	keys     []string // of opWait, opCheck and opMultiGet
	items    []Item   // of opMultiSet
	value    []byte   // of opSet, opAppend and opCompareSet
	expected []byte
	delta    int64
}

// size is approximately how many bytes the fields take.
func (r *request) size() int {
	size := 16 + len(r.key) + len(r.value) + len(r.expected)
	for _, key := range r.keys {
		size += 4 + len(key)
	}
	for _, item := range r.items {
		size += 4 + len(item.Key) + 4 + len(item.Value)
	}
	return size
}

// awaited returns the keys that the request waits for, or nil if it does not wait.
func (r *request) awaited() []string {
	switch r.op {
	case opGet:
		return []string{r.key}
	case opWait, opMultiGet:
		return r.keys
	}
	return nil
}

// check returns an error for a request that no store accepts, before it is sent.
func (r *request) check() error {
	return cmp.Or(checkKey(r.key), checkValue(r.value), checkValue(r.expected), checkKeys(r.keys), checkItems(r.items))
}

// opNames describe the operations in errors.
var opNames = [...]string{
	opSet: "set", opGet: "get", opAdd: "add to", opCompareSet: "compare and set", opWait: "wait", opDelete: "delete", opCancel: "cancel",
	opAppend: "append to", opCheck: "check", opNumKeys: "count the keys", opList: "list the keys that begin with",
	opMultiGet: "get several keys", opMultiSet: "set several keys",
}

func (r *request) String() string {
	switch r.op {
	case opWait, opCancel, opCheck, opNumKeys, opMultiGet, opMultiSet:
		return opNames[r.op]
	}
	return opNames[r.op] + " " + quote(r.key)
}

// frame returns the whole frame to send.
func (r *request) frame() []byte {
	buf := beginFrame(r.size())
	buf = binary.BigEndian.AppendUint64(buf, r.id)
	buf = append(buf, byte(r.op))
	switch r.op {
	case opSet, opAppend:
		buf = appendBytes(appendBytes(buf, r.key), r.value)
	case opGet, opDelete, opNumKeys, opList:
		buf = appendBytes(buf, r.key)
	case opAdd:
		buf = binary.BigEndian.AppendUint64(appendBytes(buf, r.key), uint64(r.delta))
	case opCompareSet:
		buf = appendBytes(appendBytes(appendBytes(buf, r.key), r.expected), r.value)
	case opWait, opCheck, opMultiGet:
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(r.keys)))
		for _, key := range r.keys {
			buf = appendBytes(buf, key)
		}
	case opMultiSet:
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(r.items)))
		for _, item := range r.items {
			buf = appendBytes(appendBytes(buf, item.Key), item.Value)
		}
	}
	return endFrame(buf)
}

// parseRequest parses a frame. Values are parts of the frame. The store checks the limits of keys and values.
func parseRequest(frame []byte) (request, error) {
	f := fields{rest: frame}
	r := request{id: f.uint64(), op: op(f.byte())}
	switch r.op {
	case opSet, opAppend:
		r.key, r.value = string(f.bytes()), f.bytes()
	case opGet, opDelete, opNumKeys, opList:
		r.key = string(f.bytes())
	case opAdd:
		r.key, r.delta = string(f.bytes()), int64(f.uint64())
	case opCompareSet:
		r.key, r.expected, r.value = string(f.bytes()), f.bytes(), f.bytes()
	case opWait, opCheck, opMultiGet:
		n, err := f.count(4)
		if err != nil {
			return r, err
		}
		r.keys = make([]string, n)
		for i := range r.keys {
			r.keys[i] = string(f.bytes())
		}
	case opMultiSet:
		n, err := f.count(4 + 4)
		if err != nil {
			return r, err
		}
		r.items = make([]Item, n)
		for i := range r.items {
			r.items[i] = Item{string(f.bytes()), f.bytes()}
		}
	case opCancel:
	default:
		return r, fmt.Errorf("%w: no operation has number %d", errMalformed, r.op)
	}
	return r, f.end()
}

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

// readFrame reads the contents of a frame, into buf if that is large enough. At the end of the stream between two frames, the error
// is io.EOF itself.
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
	r.Discard(frameHead) // cannot fail: the bytes are buffered
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

// fields reads the fields of a frame. After the first missing field, all are zero and short is set.
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

// count reads the number of the elements that follow, each of which takes at least size bytes.
func (f *fields) count(size uint64) (uint32, error) {
	n := f.uint32()
	if n > MaxRequestKeys || uint64(n)*size > uint64(len(f.rest)) {
		return 0, fmt.Errorf("%w: it is too short for %d keys", errMalformed, n)
	}
	return n, nil
}

func (f *fields) bytes() []byte { return f.take(uint64(f.uint32())) }

// end returns an error unless the fields that were read are exactly the frame.
func (f *fields) end() error {
	switch {
	case f.short:
		return fmt.Errorf("%w: it ends in the middle of a field", errMalformed)
	case len(f.rest) > 0:
		return fmt.Errorf("%w: %d bytes are left over", errMalformed, len(f.rest))
	}
	return nil
}
