package shard

import (
	"context"
	"runtime"
	"slices"
	"testing"
)

// hostileLimit is what a hostile file of 1 KiB may cost (issue D).
const hostileLimit = 64 << 20

// fuzzSources returns the pieces of a small shard with raw and compressed chunks and an empty piece.
func fuzzSources() []Source {
	return []Source{
		source("a", float32s, weights(1, 400)),
		source("zeros", bytesLayout, make([]byte, 2*chunkBytes+100)),
		source("empty", bytesLayout, nil),
		source("b", bytesLayout, noise(2, 16)),
	}
}

// try reads a hostile file as far as possible, first as it is and then with corrected checksums.
func try(t *testing.T, file []byte) {
	t.Helper()
	sources := fuzzSources()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, b := range [][]byte{file, reseal(file)} {
		r, err := tryOpen(b, sources)
		if err != nil {
			continue
		}
		verified := r.Verify(context.Background(), 2)
		for i, s := range sources {
			if err := r.Read(context.Background(), i, 0, make([]byte, s.Length), 1); err != nil && verified == nil {
				t.Fatalf("verified, and does not read: %v", err)
			}
		}
		r.Close()
	}
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; cost > hostileLimit {
		t.Fatalf("%d bytes cost %d bytes of allocations", len(file), cost)
	}
}

// FuzzHeader checks that no first 64 bytes make Open panic or allocate much.
func FuzzHeader(f *testing.F) {
	file, _ := write(f, fuzzSources(), WriteOptions{})
	f.Add(file[:headerBytes])
	f.Add(goldenFile(f)[:headerBytes])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, head []byte) {
		try(t, slices.Concat(head[:min(len(head), headerBytes)], file[min(len(head), headerBytes):]))
		try(t, head)
	})
}

// FuzzTable checks that no end of a file makes Open, Verify or Read panic or allocate much.
func FuzzTable(f *testing.F) {
	file, _ := write(f, fuzzSources(), WriteOptions{})
	tail := 5*entryBytes + trailerBytes
	f.Add(file[len(file)-tail:], uint16(len(file)-tail))
	f.Add(file[headerBytes:], uint16(headerBytes))
	f.Add([]byte(endMagic), uint16(0))
	f.Fuzz(func(t *testing.T, end []byte, keep uint16) {
		try(t, slices.Concat(file[:min(int(keep), len(file))], end))
	})
}
