package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/crc32c"
	"ddpbatch/internal/testkit"

	"pgregory.net/rapid"
)

var codecs = map[string]chunk.Codec{"auto": chunk.Auto, "zstd": chunk.ZstdOnly, "none": chunk.None}

// drawSources draws up to eight pieces of up to three and a half chunks, most of which are small. Some pieces have bases. It also returns
// the bases as a shard of their own.
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

// unloaded returns the sources with readers instead of bytes, so that Write takes them for bytes that are not in memory.
func unloaded(sources []Source) []Source {
	list := slices.Clone(sources)
	for i := range list {
		list[i].From, list[i].Data = bytes.NewReader(list[i].Data), nil
	}
	return list
}

// If a source cannot be read, Write ends with an error that names the tensor and the chunk.
func TestFailedSourceEndsTheWrite(t *testing.T) {
	t.Parallel()
	for name, codec := range codecs {
		data := noise(1, 3*chunkBytes)
		s := source("w", chunk.Layout{Width: 1}, data)
		s.From, s.Data = bytes.NewReader(data[:chunkBytes+5]), nil
		_, err := Write(t.Context(), io.Discard, testHeader, []Source{source("v", chunk.Layout{Width: 1}, data), s},
			WriteOptions{Codec: codec, Workers: 2})
		if !errors.Is(err, io.ErrUnexpectedEOF) ||
			!strings.Contains(err.Error(), `read chunk 2 of 3 of tensor "w": it ends at byte 262149`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPiecesReadBackWithEveryCodec writes pieces with every codec. Any number of workers must give the same bytes, with the checksum that
// the standard library computes, and they must read back as what was written.
func TestPiecesReadBackWithEveryCodec(t *testing.T) {
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
				if most := RawSize(sources); sum.Size > most || codec == chunk.None && sum.Size != most {
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

// TestWorkersChangeNothing mixes chunks that stay raw, which the writer's own goroutine completes, with chunks that workers encode. The
// bytes must be those of one encoder that encodes chunk after chunk.
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

// TestReadGivesAnyPartOfAPiece reads random parts of pieces. The bytes around the destination must stay as they are.
func TestReadGivesAnyPartOfAPiece(t *testing.T) {
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
			if err := r.Read(context.Background(), piece, int64(from), memory[32:32+n],
				rapid.IntRange(0, 4).Draw(t, "workers")); err != nil {
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

// TestManyGoroutinesShareAReader reads the pieces of one Reader in several goroutines at once.
func TestManyGoroutinesShareAReader(t *testing.T) {
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

// TestManySmallPiecesReadBack writes and reads more pieces than fit into a batch.
func TestManySmallPiecesReadBack(t *testing.T) {
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

// deltaOf returns a shard whose chunks are differences from a base that differs in few bytes, and the shard of the base.
func deltaOf(t *testing.T) (delta, base []Source, deltaFile, baseFile []byte) {
	t.Helper()
	base = []Source{source("w", float32s, weights(1, 3*chunkBytes)), source("v", float32s, weights(2, 400))}
	for _, s := range base {
		s.Base, s.Data = s.Data, bytes.Clone(s.Data)
		for i := 0; i < len(s.Data); i += 40 {
			s.Data[i]++
		}
		delta = append(delta, s)
	}
	baseFile, _ = write(t, base, WriteOptions{})
	deltaFile, _ = write(t, delta, WriteOptions{})
	return delta, base, deltaFile, baseFile
}

func TestDeltaReadsBackWithItsBase(t *testing.T) {
	t.Parallel()
	delta, base, deltaFile, baseFile := deltaOf(t)
	if len(deltaFile) > len(baseFile)/2 {
		t.Errorf("the differences take %d bytes, the base %d", len(deltaFile), len(baseFile))
	}
	r, b := open(t, deltaFile, delta), open(t, baseFile, base)
	if !r.IsDelta() || b.IsDelta() {
		t.Error("IsDelta is wrong")
	}
	damage := wantDamage(t, "no base", r.Verify(t.Context(), 1))
	if !strings.Contains(damage.Detail, "without one") {
		t.Errorf("no base: %v", damage)
	}
	must(t, r.SetBase(b))
	must(t, r.Verify(t.Context(), 2))
	wantData(t, r, delta, 2)
	got := make([]byte, 100)
	must(t, r.Read(t.Context(), 0, chunkBytes-50, got, 1))
	if !bytes.Equal(got, delta[0].Data[chunkBytes-50:][:100]) {
		t.Error("a range over two chunks is read as other bytes")
	}
}

func TestWrongBaseIsRefused(t *testing.T) {
	t.Parallel()
	delta, base, deltaFile, baseFile := deltaOf(t)
	r := open(t, deltaFile, delta)
	wantDamage(t, "a base that is a difference", r.SetBase(open(t, deltaFile, delta)))
	wantDamage(t, "fewer pieces", r.SetBase(open(t, mustFile(t, base[:1]), base[:1])))
	other := []Source{base[0], source("other", float32s, base[1].Data)}
	if damage := wantDamage(t, "another piece", r.SetBase(open(t, mustFile(t, other), other))); damage.Name != "v" {
		t.Errorf("another piece: %v", damage)
	}
	b := open(t, baseFile, base)
	baseFile[headerBytes+9] ^= 4
	must(t, r.SetBase(b))
	damage := wantDamage(t, "a base with a flipped bit", r.Verify(t.Context(), 1))
	if !strings.HasPrefix(damage.Detail, "in the base, chunk 1 of 3: its checksum") {
		t.Errorf("a base with a flipped bit: %v", damage)
	}
}

// The delta was encoded with other bytes than those in the base's file, as happens after a bit flip in the memory of a host. Every stored
// byte is as it was written, but Verify and Read still report the damage and do not return wrong data.
func TestDeltaOfAnotherBaseGivesNoData(t *testing.T) {
	t.Parallel()
	delta, base, _, baseFile := deltaOf(t)
	memory := bytes.Clone(delta[0].Base)
	memory[chunkBytes+12345] ^= 0x40
	delta[0].Base = memory
	r := open(t, mustFile(t, delta), delta)
	must(t, r.SetBase(open(t, baseFile, base)))
	for what, err := range map[string]error{
		"Verify": r.Verify(t.Context(), 2),
		"Read":   r.Read(t.Context(), 0, 0, make([]byte, delta[0].Length), 1),
	} {
		damage := wantDamage(t, what, err)
		if damage.Name != "w" || !strings.HasPrefix(damage.Detail, "chunk 2 of 3") ||
			!strings.HasSuffix(damage.Detail, "the base is another one or damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, r.Read(t.Context(), 0, 0, make([]byte, chunkBytes), 1))
}

func mustFile(t *testing.T, sources []Source) []byte {
	t.Helper()
	file, _ := write(t, sources, WriteOptions{})
	return file
}

// allocated returns how many bytes f allocates in all. No other test may run at the same time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestMemoryIsWhatTheDocumentationSays writes and verifies 24 MiB, with up to 2 MiB for each encoder or decoder.
func TestMemoryIsWhatTheDocumentationSays(t *testing.T) {
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
		{"write auto what stays raw", 1 << 16, func() error { return discard(incompressible, chunk.Auto) }}, // without worker and buffer
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

// TestSparseShardIsCheap opens sparse files whose chunk tables of 1 GiB do not take space on disk. The second table begins with 64 KiB of
// entries that could be right.
func TestSparseShardIsCheap(t *testing.T) {
	const chunks = 1 << 26
	pieces := []Piece{{Name: "w", Layout: bytesLayout, Length: chunks * chunkBytes}}
	p, err := newChunking(pieces)
	must(t, err)
	header := testHeader.full(p)
	header.version = Version
	plausible := chunkEntry{stored: 20, method: chunk.Zstd}
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
