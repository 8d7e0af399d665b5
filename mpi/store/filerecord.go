package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A record of the file is a key and its new value, each with its length (4 bytes, little-endian: PyTorch writes its
// host's order, and knows no other host) before it. What users call k is "/k"; "-/k" says that k is deleted. Every
// other key is FileStore's own. (torch/csrc/distributed/c10d/FileStore.cpp.)
const (
	keyMark    = '/'
	deleteMark = "-/"
	closedKey  = "cleanup/" // decimal: how many processes have closed the file

	maxRecordKey = MaxKey + len(deleteMark)
)

// errTorn is where the file ends in the middle of a record.
var errTorn = errors.New("the record is incomplete")

// appendRecord appends a record to buf; key is as it is in the file.
func appendRecord(buf []byte, key string, value []byte) []byte {
	buf = append(binary.LittleEndian.AppendUint32(buf, uint32(len(key))), key...)
	return append(binary.LittleEndian.AppendUint32(buf, uint32(len(value))), value...)
}

// readRecord reads one record, of size bytes. At the end between two, the error is io.EOF.
func readRecord(r *bufio.Reader) (key string, value []byte, size int64, err error) {
	if _, err := r.Peek(1); err == io.EOF {
		return "", nil, 0, io.EOF
	}
	text, err := readField(r, maxRecordKey)
	if err != nil {
		return "", nil, 0, fmt.Errorf("its key: %w", err)
	}
	if value, err = readField(r, MaxValue); err != nil {
		return "", nil, 0, fmt.Errorf("its value: %w", err)
	}
	return string(text), value, int64(4 + len(text) + 4 + len(value)), nil
}

func readField(r *bufio.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, torn(err)
	}
	size := binary.LittleEndian.Uint32(head[:])
	if uint64(size) > uint64(most) {
		return nil, fmt.Errorf("it has %d bytes, more than %d: %w", size, most, ErrMalformedFile)
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
