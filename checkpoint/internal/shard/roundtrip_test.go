package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/testkit"

	"pgregory.net/rapid"
)

var codecs = map[string]chunk.Codec{"auto": chunk.Auto, "zstd": chunk.ZstdOnly, "none": chunk.None}

// drawSources makes up to eight pieces of up to three and a half chunks, most of them small; some have bases, which are also
// returned as a checkpoint of their own.
func drawSources(t *rapid.T) (sources, bases []Source) {
	for i := range rapid.IntRange(0, 8).Draw(t, "pieces") {
		layout := chunk.Layout{
			Width: rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "width"),
			Float: rapid.Bool().Draw(t, "float"),
		}
		limit := rapid.SampledFrom([]int{0, 3, 100, 20_000, chunkBytes / 4, 7 * chunkBytes / 2 / layout.Width}).Draw(t, "limit")
		n := rapid.IntRange(0, limit).Draw(t, "elements") * layout.Width
		seed := rapid.Uint64().Draw(t, "seed")
		data := rapid.SampledFrom([]func() []byte{
			func() []byte { return noise(seed, n) },
			func() []byte { return weights(seed, n) },
			func() []byte { return make([]byte, n) },
			func() []byte { return bytes.Repeat([]byte{byte(seed)}, n) },
		}).Draw(t, "kind")()
		s := source(fmt.Sprint("piece", i), layout, data)
		base := s
		if rapid.Bool().Draw(t, "delta") {
			base.Data = bytes.Clone(data)
			for k := 0; k < n; k += 97 {
				base.Data[k] ^= byte(seed)
			}
			s.Base = base.Data
		}
		sources, bases = append(sources, s), append(bases, base)
	}
	return sources, bases
}

// unloaded are sources whose bytes are not in memory, as far as Write knows.
func unloaded(sources []Source) []Source {
	list := slices.Clone(sources)
	for i := range list {
		list[i].From, list[i].Data = bytes.NewReader(list[i].Data), nil
	}
	return list
}

// TestSourceFails: what cannot be read ends the write, with the tensor and its chunk.
func TestSourceFails(t *testing.T) {
	t.Parallel()
	for name, codec := range codecs {
		data := noise(1, 3*chunkBytes)
		s := source("w", chunk.Layout{Width: 1}, data)
		s.From, s.Data = bytes.NewReader(data[:chunkBytes+5]), nil
		_, err := Write(t.Context(), io.Discard, testHeader, []Source{source("v", chunk.Layout{Width: 1}, data), s}, WriteOptions{Codec: codec, Workers: 2})
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), `read chunk 2 of 3 of tensor "w": it ends at byte 262149`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRoundTrip writes pieces with every codec: any number of workers gives the same bytes, with the checksum that the
// standard library finds, and they read as what was written.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				sources, bases := drawSources(rt)
				file, sum := write(t, sources, WriteOptions{Codec: codec})
				if sum.Size != int64(len(file)) || sum.CRC != crcOf(file) {
					rt.Fatalf("said to be %+v, is %d bytes with %08x", sum, len(file), crcOf(file))
				}
				if most := RawSize(piecesOf(sources)); sum.Size > most || codec == chunk.None && sum.Size != most {
					rt.Fatalf("%d bytes, RawSize %d", sum.Size, most)
				}
				workers := rapid.IntRange(2, 4).Draw(rt, "workers")
				if again, _ := write(t, sources, WriteOptions{Codec: codec, Workers: workers}); !bytes.Equal(again, file) {
					rt.Fatalf("%d workers write other bytes than one", workers)
				}
				if again, _ := write(t, unloaded(sources), WriteOptions{Codec: codec, Workers: workers}); !bytes.Equal(again, file) {
					rt.Fatal("what is not in memory gives other bytes than what is")
				}
				r, err := tryOpen(file, sources)
				must(t, err)
				defer r.Close()
				baseFile, _ := write(t, bases, WriteOptions{Codec: codec})
				base, err := tryOpen(baseFile, bases)
				must(t, err)
				defer base.Close()
				must(t, r.SetBase(base))
				must(t, r.Verify(t.Context(), workers))
				wantData(t, r, sources, workers)
			})
		})
	}
}

// TestWorkersChangeNothing: chunks that stay raw, which the writer's own goroutine settles, between chunks that workers encode: the bytes
// are those of one encoder that takes chunk after chunk.
func TestWorkersChangeNothing(t *testing.T) {
	t.Parallel()
	var sources []Source
	for i, chunks := range []int{9, 1, 4, 2, 5, 3, 8} {
		kind := []func(uint64, int) []byte{noise, weights}[i%2]
		sources = append(sources, source(fmt.Sprint("piece", i), float32s, kind(uint64(i), chunks*chunkBytes+4*i)))
	}
	enc, err := chunk.NewEncoder(chunk.Auto)
	must(t, err)
	var want []byte
	for _, s := range sources {
		for raw := range slices.Chunk(s.Data, chunkBytes) {
			stored, _ := enc.Encode(raw, nil, s.Layout)
			want = append(want, stored...)
		}
	}
	for name, sources := range map[string][]Source{"in memory": sources, "not in memory": unloaded(sources)} {
		for workers := range 5 {
			file, _ := write(t, sources, WriteOptions{Workers: workers})
			if !bytes.Equal(file[headerBytes:headerBytes+len(want)], want) {
				t.Errorf("%s, %d workers: the chunks are other bytes", name, workers)
			}
		}
	}
}

// TestReadRange reads any part of a piece, into memory whose neighbours must stay as they are.
func TestReadRange(t *testing.T) {
	t.Parallel()
	sources := mixture()
	for name, codec := range codecs {
		file, _ := write(t, sources, WriteOptions{Codec: codec})
		r := open(t, file, sources)
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			piece := rapid.IntRange(0, len(sources)-1).Draw(t, "piece")
			data := sources[piece].Data
			from := rapid.IntRange(0, len(data)).Draw(t, "from")
			n := rapid.IntRange(0, len(data)-from).Draw(t, "bytes")
			memory := bytes.Repeat([]byte{0xa5}, n+64)
			if err := r.Read(context.Background(), piece, int64(from), memory[32:32+n], rapid.IntRange(0, 4).Draw(t, "workers")); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(memory[32:32+n], data[from:from+n]) {
				t.Fatal("read as other bytes")
			}
			if edge := bytes.Repeat([]byte{0xa5}, 32); !bytes.Equal(memory[:32], edge) || !bytes.Equal(memory[32+n:], edge) {
				t.Fatal("wrote beside dst")
			}
		}))
	}
}

// TestReadersShareOne reads the pieces of one Reader in several goroutines at once.
func TestReadersShareOne(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, _ := write(t, sources, WriteOptions{})
	r := open(t, file, sources)
	for _, err := range testkit.Each(4, func(rank int) error {
		for i := range sources {
			s := sources[(i+rank)%len(sources)]
			got := make([]byte, s.Length)
			if err := r.Read(t.Context(), (i+rank)%len(sources), 0, got, 2); err != nil {
				return err
			}
			if !bytes.Equal(got, s.Data) {
				return fmt.Errorf("%q is read as other bytes", s.Name)
			}
		}
		return nil
	}) {
		must(t, err)
	}
}

// TestManySmallPieces has more pieces than a batch takes.
func TestManySmallPieces(t *testing.T) {
	t.Parallel()
	sources := make([]Source, 2*batchChunks+3)
	for i := range sources {
		sources[i] = source(fmt.Sprint(i), bytesLayout, noise(uint64(i), i%5))
	}
	file, _ := write(t, sources, WriteOptions{Workers: 2})
	r := open(t, file, sources)
	must(t, r.Verify(t.Context(), 2))
	wantData(t, r, sources, 1)
}
