package shard

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
)

// allocated is what f allocates in all. No other test may run beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestMemory writes and verifies 24 MiB in what doc.go says, with up to 2 MiB for each encoder or decoder.
func TestMemory(t *testing.T) {
	sources := []Source{source("w", float32s, weights(1, 24<<20))}
	file, _ := write(t, sources, WriteOptions{})
	r := open(t, file, sources)
	incompressible := []Source{source("noise", float32s, noise(2, 24<<20))}
	for _, test := range []struct {
		what  string
		limit uint64
		do    func() error
	}{
		{"write auto", 9 << 20, func() error { return discard(sources, chunk.Auto) }},
		{"write auto what stays raw", 1 << 16, func() error { return discard(incompressible, chunk.Auto) }}, // no worker, no buffer
		{"write none", 1 << 16, func() error { return discard(sources, chunk.None) }},
		{"write auto what is not in memory", 15 << 20, func() error { return discard(unloaded(sources), chunk.Auto) }},
		{"write none what is not in memory", 5 << 18, func() error { return discard(unloaded(sources), chunk.None) }},
		{"verify", 8 << 20, func() error { return r.Verify(context.Background(), 2) }},
	} {
		var err error
		got := allocated(func() { err = test.do() })
		must(t, err)
		if got > test.limit {
			t.Errorf("%s: %d bytes allocated, want at most %d", test.what, got, test.limit)
		}
	}
}

func discard(sources []Source, c chunk.Codec) error {
	_, err := Write(context.Background(), io.Discard, testHeader, sources, WriteOptions{Codec: c, Workers: 2})
	return err
}

// TestSparseShardIsCheap opens files whose chunk tables of 1 GiB take no room on disk. The second table begins with 64 KiB of entries that
// could be right.
func TestSparseShardIsCheap(t *testing.T) {
	const chunks = 1 << 26
	pieces := []Piece{{Name: "w", Layout: bytesLayout, Length: chunks * chunkBytes}}
	p, err := newPlan(pieces)
	must(t, err)
	header := testHeader.full(p)
	header.version = Version
	plausible := entry{stored: 20, method: chunk.Zstd}
	for name, entries := range map[string]int{"nothing but zeros": 0, "plausible at first": tablePart / entryBytes} {
		path := filepath.Join(t.TempDir(), "shard")
		f, err := os.Create(path)
		must(t, err)
		defer f.Close()
		const table = int64(chunks) * entryBytes
		_, err = f.Write(header.encode())
		must(t, err)
		var first []byte
		for range entries {
			first = plausible.append(first, chunkBytes)
		}
		_, err = f.WriteAt(first, headerBytes)
		must(t, err)
		trailer := make([]byte, trailerBytes)
		binary.LittleEndian.PutUint64(trailer[0:], headerBytes)
		binary.LittleEndian.PutUint64(trailer[8:], uint64(table))
		binary.LittleEndian.PutUint32(trailer[20:], crc32c.Checksum(trailer[:20]))
		copy(trailer[24:], endMagic)
		_, err = f.WriteAt(trailer, headerBytes+table)
		must(t, err)

		got := allocated(func() { _, err = Open(f, headerBytes+table+trailerBytes, testHeader, pieces, 0) })
		if damage := wantDamage(t, name, err); !strings.Contains(damage.Error(), fmt.Sprintf("chunk %d of %d", entries+1, chunks)) {
			t.Errorf("%s: %v", name, err)
		}
		if got > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a file of less than 1 MiB on disk", name, got)
		}
	}
}
