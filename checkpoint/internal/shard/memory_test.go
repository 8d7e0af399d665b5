package shard

import (
	"context"
	"io"
	"runtime"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
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
