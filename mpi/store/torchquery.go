package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// torchForm is one of the forms that PyTorch's TCPStore protocol has had. Neither contains a proof of identity. All integers are in
// the client's byte order, which is little-endian on every host for which PyTorch is built today. A query is its number (1 byte)
// and its fields. A key or a value is its length (8 bytes), followed by that many bytes. A list is the number of its elements (8
// bytes), followed by these.
type torchForm byte

const (
	// torch1 is the form of PyTorch 1.13 (torch/csrc/distributed/c10d/TCPStore.cpp). A client also opens a second connection, on
	// which it sends nothing unless C++ code calls watchKey.
	torch1 torchForm = iota
	// torch2 is the form of PyTorch 2.2 and later (TCPStoreBackend.hpp). A connection begins with torchHello.
	torch2
)

// torchHello is torch2's query 0 with its magic number, 0x3C85F7CE.
const torchHello = "\x00\xce\xf7\x85\x3c"

// torchOp is a query by its number in torch2. In torch1, numbers up to torchNumKeys are one less, followed by torch1Watch and
// torch1Delete.
type torchOp byte

const (
	torchSet        torchOp = iota + 1 // key, value. No reply.
	torchCompareSet                    // key, expected, desired. Replies the value afterwards, or expected if there is none.
	torchGet                           // key. Replies the value.
	torchAdd                           // key, 8 bytes. Replies the sum: 8 bytes.
	torchCheck                         // keys. Replies 0 if all exist, else 1.
	torchWait                          // keys. Replies 0 when all exist.
	torchNumKeys                       // Replies 8 bytes.
	torchDelete                        // key. Replies 8 bytes: 1 if it existed, else 0.
	torchAppend                        // key, value. No reply.
	torchMultiGet                      // keys. Replies their values, without their number.
	torchMultiSet                      // list of key and value. No reply.
	torchCancelWait                    // Replies 1.
	torchPing                          // 4 bytes. Replies the same.
	torchQueuePush                     // key, value. No reply. This and the following are new in 2.8.
	torchQueuePop                      // key. Replies how many values there were: 8 bytes; and the first of them, if any.
	torchQueueLen                      // key. Replies how many values there are: 8 bytes.
)

// These are numbers in torch1.
const (
	torch1Watch  = 7 // WATCH_KEY: not served. Only C++ code sends it, on a client's second connection.
	torch1Delete = 8
)

// torchQuery is a query. Its operation decides which fields it has.
type torchQuery struct {
	op              torchOp
	key             string
	value, expected []byte
	delta           int64
	nonce           uint32
	keys            []string
	items           []Item
	size            int // bytes taken from the allowance
}

// torchReader reads queries. The bytes of a query are taken, as they arrive, from an allowance that all connections share.
type torchReader struct {
	r         *bufio.Reader
	form      torchForm
	prefix    string // prepended to every key
	allowance *budget
	taken     int // for the query that is being read
}

// next reads one query. The caller must give its size back to the allowance, except after an error.
func (r *torchReader) next() (q torchQuery, err error) {
	r.taken = 0
	if q, err = r.query(); err != nil {
		r.allowance.give(r.taken)
		return torchQuery{}, err
	}
	q.size = r.taken
	return q, nil
}

func (r *torchReader) query() (q torchQuery, err error) {
	number, err := r.r.ReadByte()
	if err != nil {
		return q, err
	}
	if q.op, err = r.form.op(number); err != nil {
		return q, err
	}
	f := torchFields{torchReader: r}
	switch q.op {
	case torchSet, torchAppend, torchQueuePush:
		q.key, q.value = f.key(), f.value()
	case torchCompareSet:
		q.key, q.expected, q.value = f.key(), f.value(), f.value()
	case torchGet, torchDelete, torchQueuePop, torchQueueLen:
		q.key = f.key()
	case torchAdd:
		q.key, q.delta = f.key(), int64(f.uint64())
	case torchCheck, torchWait, torchMultiGet:
		for n := f.count(); len(q.keys) < n && f.err == nil; {
			q.keys = append(q.keys, f.key())
		}
	case torchMultiSet:
		for n := f.count(); len(q.items) < n && f.err == nil; {
			q.items = append(q.items, Item{f.key(), f.value()})
		}
	case torchPing:
		q.nonce = f.uint32()
	}
	return q, f.err
}

func (form torchForm) op(number byte) (torchOp, error) {
	op := torchOp(number)
	switch {
	case form == torch2 && op >= torchSet && op <= torchQueueLen:
		return op, nil
	case form == torch1 && op < torchNumKeys:
		return op + 1, nil
	case form == torch1 && op == torch1Delete:
		return torchDelete, nil
	case form == torch1 && op == torch1Watch:
		return 0, fmt.Errorf("%w: watching a key (query %d) is not served", errMalformed, number)
	}
	return 0, fmt.Errorf("%w: query %d is not served", errMalformed, number)
}

// torchFields reads a query's fields. After the first error, which is kept, all fields are zero.
type torchFields struct {
	*torchReader
	err error
}

func (f *torchFields) key() string {
	text := f.bytes(max(0, MaxKey-len(f.prefix)))
	if f.err != nil {
		return ""
	}
	return f.prefix + string(text)
}

func (f *torchFields) value() []byte { return f.bytes(MaxValue) }

// count reads the number of elements of a list.
func (f *torchFields) count() int {
	n := f.uint64()
	if n > MaxRequestKeys && f.err == nil {
		f.err = fmt.Errorf("%w: %d keys", errMalformed, n)
	}
	if f.err != nil {
		return 0
	}
	return int(n)
}

func (f *torchFields) uint64() uint64 { return binary.LittleEndian.Uint64(f.fixed(8)) }
func (f *torchFields) uint32() uint32 { return binary.LittleEndian.Uint32(f.fixed(4)) }

// fixed reads a number of up to 8 bytes into a buffer of 8.
func (f *torchFields) fixed(size int) []byte {
	var buf [8]byte
	f.read(buf[:size])
	return buf[:]
}

// bytes reads a length and that many bytes.
func (f *torchFields) bytes(most int) []byte {
	n := f.uint64()
	if n > uint64(most) && f.err == nil {
		f.err = fmt.Errorf("%w: a field of %d bytes, more than %d", errMalformed, n, most)
	}
	if f.err == nil {
		f.err = f.take(fieldCost)
	}
	const first = 4 << 10
	buf := []byte{}
	for f.err == nil && len(buf) < int(n) {
		step := min(int(n)-len(buf), max(len(buf), first)) // at most twice as much memory as bytes that have come
		if f.err = f.take(step); f.err == nil {
			buf = slices.Grow(buf, step)[:len(buf)+step]
			f.read(buf[len(buf)-step:])
		}
	}
	return buf
}

func (f *torchFields) read(buf []byte) {
	if f.err != nil {
		return
	}
	if _, f.err = io.ReadFull(f.r, buf); f.err == io.EOF {
		f.err = io.ErrUnexpectedEOF
	}
}

const (
	fieldCost     = 64 // approximate cost in bytes of a key or a value, besides its contents
	maxTorchQuery = MaxTogether + 2*MaxRequestKeys*fieldCost
)

// errNoRoom ends the connection of a client that has done nothing wrong.
var errNoRoom = errors.New("no room for the query")

// take takes size bytes from the allowance.
func (r *torchReader) take(size int) error {
	if r.taken+size > maxTorchQuery {
		return fmt.Errorf("%w: a query of more than %d bytes", errMalformed, maxTorchQuery)
	}
	if !r.allowance.tryTake(size) {
		return fmt.Errorf("%w: PyTorch's clients have sent more than %d bytes that are still pending", errNoRoom, r.allowance.most)
	}
	r.taken += size
	return nil
}
