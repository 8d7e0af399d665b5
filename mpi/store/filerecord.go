package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A record of the file is a key and its new value, each with its length (4 bytes, little-endian: PyTorch writes its
// host's order, and knows no other host) before it. What users call k is "/k"; "-/k" says that k is deleted. Every
// other key is FileStore's own. (torch/csrc/distributed/c10d/FileStore.cpp.)
const (
	keyMark    = '/'
	deleteMark = "-/"
	closedKey  = "cleanup/" // decimal: how many processes have closed the file

	maxRecordKey = int64(MaxKey + len(deleteMark))
)

// errTorn is where the file ends in the middle of a record.
var errTorn = errors.New("the record is incomplete")

// appendRecord appends a record to buf; key is as it is in the file.
func appendRecord(buf []byte, key string, value []byte) []byte {
	buf = append(binary.LittleEndian.AppendUint32(buf, uint32(len(key))), key...)
	return append(binary.LittleEndian.AppendUint32(buf, uint32(len(value))), value...)
}

// readRecord reads one record, of size bytes, where left bytes are left of the file. At the end between two, the error
// is io.EOF. One that is whole but over this store's limits, as PyTorch may write it, is ErrTooLarge.
func readRecord(r *bufio.Reader, left int64) (key string, value []byte, size int64, err error) {
	if _, err := r.Peek(1); err == io.EOF {
		return "", nil, 0, io.EOF
	}
	text, err := readField(r, maxRecordKey, func(n int64) error { return largeKey(r, n, left-4) })
	if err != nil {
		return "", nil, 0, fmt.Errorf("its key: %w", err)
	}
	key, size = string(text), int64(4+len(text)+4)
	value, err = readField(r, MaxValue, func(n int64) error { return largeValue(key, n, left-size) })
	if err != nil {
		return "", nil, 0, fmt.Errorf("its value: %w", err)
	}
	return key, value, size + int64(len(value)), nil
}

// largeKey and largeValue tell what a length over the limit is: that of a field, where left bytes of the file have room
// for so many, else of something that is no record.
func largeKey(r *bufio.Reader, n, left int64) error {
	if n > left {
		return fmt.Errorf("it has %d bytes, more than %d: %w", n, maxRecordKey, ErrMalformedFile)
	}
	begin, err := r.Peek(1 + namedBytes + 1) // so much that quote shows that there is more
	if err != nil {
		return torn(err)
	}
	return fmt.Errorf("%s has %d bytes, more than %d: %w", userKey(string(begin)), n-1, MaxKey, ErrTooLarge)
}

func largeValue(key string, n, left int64) error {
	if n > left {
		return fmt.Errorf("it has %d bytes, more than %d: %w", n, MaxValue, ErrMalformedFile)
	}
	return fmt.Errorf("that of %s has %d bytes, more than %d: %w", userKey(key), n, MaxValue, ErrTooLarge)
}

// userKey shows a record's key as its users call it.
func userKey(key string) string { return quote(strings.TrimPrefix(key, string(keyMark))) }

// readField reads a length and that many bytes, or returns what large makes of a length over most.
func readField(r *bufio.Reader, most int64, large func(size int64) error) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, torn(err)
	}
	size := int64(binary.LittleEndian.Uint32(head[:]))
	if size > most {
		return nil, large(size)
	}
	field := make([]byte, size)
	if _, err := io.ReadFull(r, field); err != nil {
		return nil, torn(err)
	}
	return field, nil
}

// torn tells an end from a failing disk.
func torn(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTorn
	}
	return err
}
