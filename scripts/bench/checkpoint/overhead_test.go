package main

import (
	"bytes"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// With and without the checksum, writeState writes the same bytes, and the checksum is that of the file.
func TestWriteStateIsTheSameBothWays(t *testing.T) {
	s := newTrainingState(12<<20 - 5<<10)
	with, without := filepath.Join(t.TempDir(), "with"), filepath.Join(t.TempDir(), "without")
	crc, err := writeState(s, with, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeState(s, without, false); err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(with)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(without)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(a)) != s.bytes() || !bytes.Equal(a, b) {
		t.Errorf("the files have %d and %d bytes; are they equal: %v", len(a), len(b), bytes.Equal(a, b))
	}
	if want := crc32.Checksum(a, crc32.MakeTable(crc32.Castagnoli)); crc != want {
		t.Errorf("the checksum is %08x, of the file %08x", crc, want)
	}
}
