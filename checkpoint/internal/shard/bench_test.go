package shard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
)

// benchBytes is a large layer of float32.
const benchBytes = 64 << 20

func benchSources() []Source {
	return []Source{source("w", float32s, weights(1, benchBytes)), source("b", float32s, weights(2, 4096))}
}

// BenchmarkWrite encodes a shard and discards it. The disk should not have to wait for that.
func BenchmarkWrite(b *testing.B) {
	sources := benchSources()
	for _, codec := range []string{"none", "auto"} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", codec, workers), func(b *testing.B) {
				b.SetBytes(benchBytes)
				b.ReportAllocs()
				for b.Loop() {
					o := WriteOptions{Codec: codecs[codec], Workers: workers}
					if _, err := Write(context.Background(), io.Discard, testHeader, sources, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// benchReader runs f on readers of both codecs, with one worker and with two.
func benchReader(b *testing.B, f func(r *Reader, workers int) error) {
	sources := benchSources()
	for _, codec := range []string{"none", "auto"} {
		file, _ := write(b, sources, WriteOptions{Codec: codecs[codec], Workers: 2})
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", codec, workers), func(b *testing.B) {
				r := open(b, file, sources)
				b.SetBytes(benchBytes)
				b.ReportAllocs()
				for b.Loop() {
					if err := f(r, workers); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	dst := make([]byte, benchBytes)
	benchReader(b, func(r *Reader, workers int) error { return r.Read(context.Background(), 0, 0, dst, workers) })
}

func BenchmarkVerify(b *testing.B) {
	benchReader(b, func(r *Reader, workers int) error { return r.Verify(context.Background(), workers) })
}

// BenchmarkOpen opens a shard of 4096 chunks, which would hold 1 GiB if they were full.
func BenchmarkOpen(b *testing.B) {
	sources := make([]Source, 4096)
	for i := range sources {
		sources[i] = source("w", bytesLayout, noise(uint64(i), 1000+i%999))
	}
	file, sum := write(b, sources, WriteOptions{})
	pieces, f := piecesOf(sources), bytes.NewReader(file)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(f, sum.Size, testHeader, pieces, sum.CRC); err != nil {
			b.Fatal(err)
		}
	}
}
