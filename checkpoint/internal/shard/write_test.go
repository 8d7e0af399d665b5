package shard

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// worked is the first shard in docs/format.md, with version 2 in it. Its checksums were computed by hand, bit by bit, from the definition
// in RFC 3720, not by this program.
const worked = `
89 44 44 50 0d 0a 1a 0a  02 00 00 00  40 00 00 00
07 00 00 00 00 00 00 00  01 00 00 00  03 00 00 00
02 00 00 00  02 00 00 00
10 00 00 00 00 00 00 00  00 00 04 00
00 00 00 00 00 00 00 00  27 2c 0b fe
00 00 80 3f 00 00 00 c0
03 00 00 00 00 00 00 00
08 00 00 00 08 00 00 00  c9 f2 36 aa  00 00 00 00
08 00 00 00 08 00 00 00  e3 35 6c 57  00 00 00 00
50 00 00 00 00 00 00 00  20 00 00 00 00 00 00 00  96 e6 c0 0a  0a 77 5e 75
44 44 50 54 45 4e 44 0a`

func TestWriteGivesTheWorkedExample(t *testing.T) {
	t.Parallel()
	want, err := hex.DecodeString(strings.Join(strings.Fields(worked), ""))
	must(t, err)
	sources := []Source{
		source("w", float32s, want[64:72]),
		source("n", chunk.Layout{Width: 8}, want[72:80]),
	}
	if got, _ := write(t, sources, WriteOptions{}); !bytes.Equal(got, want) {
		t.Errorf("wrote\n% x\nwant\n% x", got, want)
	}
	wantData(t, open(t, want, sources), sources, 1)
}

// recorder keeps the writes that it gets.
type recorder [][]byte

func (r *recorder) Write(p []byte) (int, error) { *r = append(*r, p); return len(p), nil }

// Write passes chunks that are stored raw to w without copying them, adjacent chunks together, up to 1 MiB at a time.
func TestRawIsWrittenFromWhereItLies(t *testing.T) {
	t.Parallel()
	data := noise(1, 10*chunkBytes)
	for name, codec := range codecs {
		var got recorder
		_, err := Write(t.Context(), &got, testHeader, []Source{source("w", bytesLayout, data)}, WriteOptions{Codec: codec})
		must(t, err)
		if len(got) != 5 { // header, 4 chunks, 4 chunks, 2 chunks, table with trailer
			t.Fatalf("%s: %d writes", name, len(got))
		}
		rest := data
		for i, written := range got[1:4] {
			if &written[0] != &rest[0] || len(written) != min(4*chunkBytes, len(rest)) {
				t.Errorf("%s: write %d is a copy, or has %d bytes", name, 1+i, len(written))
			}
			rest = rest[len(written):]
		}
	}
}

// A thousand scalars are written in one write.
func TestSmallChunksAreGathered(t *testing.T) {
	t.Parallel()
	sources := make([]Source, 1000)
	for i := range sources {
		sources[i] = source("scalar", float32s, weights(uint64(i), 4))
	}
	var got recorder
	_, err := Write(t.Context(), &got, testHeader, sources, WriteOptions{Codec: chunk.None})
	must(t, err)
	if len(got) != 3 || len(got[1]) != 4000 {
		t.Errorf("%d writes, the second of %d bytes", len(got), len(got[1]))
	}
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFailedWriterEndsTheWrite makes each write fail in turn, once with an error and once with a short write without an error.
func TestFailedWriterEndsTheWrite(t *testing.T) {
	t.Parallel()
	sources := mixture()
	for at := 0; ; at++ {
		writes := 0
		for _, short := range []bool{false, true} {
			writes = 0
			w := writerFunc(func(p []byte) (int, error) {
				if writes++; writes <= at {
					return len(p), nil
				}
				if short {
					return len(p) / 2, nil
				}
				return len(p) / 2, syscall.ENOSPC
			})
			_, err := Write(t.Context(), w, testHeader, sources, WriteOptions{Workers: 3})
			want := error(syscall.ENOSPC)
			if short {
				want = io.ErrShortWrite
			}
			if writes > at+1 {
				t.Fatalf("went on after write %d failed", at+1)
			}
			if writes > at && !errors.Is(err, want) || writes <= at && err != nil {
				t.Fatalf("write %d: error %v, want %v", at+1, err, want)
			}
		}
		if writes <= at {
			if at < 5 {
				t.Errorf("only %d writes", at)
			}
			return
		}
	}
}

// TestWriteEndsWithItsContext cancels the context in each of the first writes.
func TestWriteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	sources := mixture()
	for _, workers := range []int{1, 3} {
		for at := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			writes := 0
			w := writerFunc(func(p []byte) (int, error) {
				if writes++; writes > at {
					cancel()
				}
				return len(p), nil
			})
			if _, err := Write(ctx, w, testHeader, sources, WriteOptions{Workers: workers}); !errors.Is(err, context.Canceled) {
				t.Errorf("%d workers, cancelled in write %d: error %v", workers, at+1, err)
			}
			if writes > at+8 {
				t.Errorf("%d writes after it was cancelled", writes-at)
			}
			cancel()
		}
	}
}

// Write refuses arguments that do not fit each other.
func TestWriteRefusesMisuse(t *testing.T) {
	t.Parallel()
	good := source("w", float32s, weights(1, 8))
	misuses := map[string]func(h *Header, s *Source, o *WriteOptions){
		"version 1":       func(h *Header, _ *Source, _ *WriteOptions) { h.Version = 1 },
		"step":            func(h *Header, _ *Source, _ *WriteOptions) { h.Step = -1 },
		"shard":           func(h *Header, _ *Source, _ *WriteOptions) { h.Shard = h.Shards },
		"negative shard":  func(h *Header, _ *Source, _ *WriteOptions) { h.Shard = -1 },
		"workers":         func(_ *Header, _ *Source, o *WriteOptions) { o.Workers = -1 },
		"length":          func(_ *Header, s *Source, _ *WriteOptions) { s.Length = 4 },
		"base's length":   func(_ *Header, s *Source, _ *WriteOptions) { s.Base = s.Data[:4] },
		"width":           func(_ *Header, s *Source, _ *WriteOptions) { s.Layout.Width = 3 },
		"half an element": func(_ *Header, s *Source, _ *WriteOptions) { s.Data, s.Length = s.Data[:6], 6 },
	}
	for name, misuse := range misuses {
		h, s, o := testHeader, good, WriteOptions{}
		misuse(&h, &s, &o)
		wantPanic(t, name, func() { Write(t.Context(), io.Discard, h, []Source{s}, o) })
	}
	file, _ := write(t, []Source{good}, WriteOptions{})
	r := open(t, file, []Source{good})
	for _, offset := range []int64{-1, 5, 9} {
		wantPanic(t, "range", func() { r.Read(t.Context(), 0, offset, make([]byte, 4), 1) })
	}
}

func wantPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
