package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"ddpbatch/internal/vfs"
)

// reseal makes every checksum of a shard right again: of the chunks as far as the table makes
// sense, of the table, the header and the trailer.
func reseal(data []byte) {
	if len(data) < headerBytes+trailerBytes {
		return
	}
	le, size := binary.LittleEndian, uint64(len(data))
	trailer := data[size-trailerBytes:]
	offset, length := le.Uint64(trailer), le.Uint64(trailer[8:])
	if offset <= size && length <= size-offset {
		table := data[offset : offset+length]
		position := uint64(headerBytes)
		for e := 0; e+entryBytes <= len(table); e += entryBytes {
			stored := uint64(le.Uint32(table[e:]))
			if position+stored > size {
				break
			}
			le.PutUint32(table[e+8:], crc32.Checksum(data[position:position+stored], castagnoli))
			position += stored
		}
		le.PutUint32(trailer[16:], crc32.Checksum(table, castagnoli))
	}
	le.PutUint32(data[60:], crc32.Checksum(data[:60], castagnoli))
	le.PutUint32(trailer[20:], crc32.Checksum(trailer[:20], castagnoli))
}

// hostileShard is a shard file with whatever chunks and raw lengths are asked for, all checksums
// right, under a manifest that claims one uint8 tensor of that many bytes.
func hostileShard(t *testing.T, m *vfs.Mem, raw int64, chunks [][]byte) *Dir {
	t.Helper()
	var body, table []byte
	left := raw
	for _, c := range chunks {
		e := chunkEntry{stored: uint32(len(c)), raw: uint32(min(left, chunkBytes)), codec: chunkZstd}
		left -= int64(e.raw)
		body = append(body, c...)
		table = e.append(table)
	}
	h := shardHeader{version: 1, step: 1, shards: 1, tensors: 1, chunks: uint32(chunkCount(raw)), raw: uint64(raw)}
	data := append(h.encode(), body...)
	offset := int64(len(data))
	data = append(append(data, table...), encodeTrailer(offset, int64(len(table)), 0)...)
	reseal(data)
	return plantShard(t, m, data, fmt.Sprintf(`{"name":"x","dtype":"uint8","shape":[%d],"shard":0,"offset":0,"length":%d}`, raw, raw), raw)
}

// plantShard puts a shard file and a manifest with the right sums into step 1.
func plantShard(t testing.TB, m *vfs.Mem, data []byte, tensors string, raw int64) *Dir {
	t.Helper()
	d := openDir(t, Options{FS: m})
	for _, dir := range []string{testPath, d.stepPath(1)} {
		if _, err := m.Stat(dir); err != nil {
			must(t, m.Mkdir(dir))
		}
	}
	name := tag{attempt: 1}.shardName(0, 1)
	putFile(t, m, d.stepPath(1)+"/"+name, data)
	putFile(t, m, d.stepPath(1)+"/"+manifestName, sealed(fmt.Sprintf(
		`{"format":"ddpbatch checkpoint","version":1,"step":1,"world":1,"tensors":[%s],"shards":[{"file":"%s","size":%d,"raw":%d,"crc32c":"%08x"}]`,
		tensors, name, len(data), raw, crc32.Checksum(data, castagnoli))))
	return d
}

// TestHostileFilesAreCheap reads files of about 1 KiB whose checksums are all right, and wants
// each to cost less than 64 MiB.
func TestHostileFilesAreCheap(t *testing.T) { // not parallel: it counts what the process allocates
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true))
	must(t, err)
	zeros := enc.EncodeAll(make([]byte, chunkBytes), nil)
	bomb := enc.EncodeAll(make([]byte, 64<<20), nil)
	// RFC 8878, 3.1.1: magic, a frame header that asks for a 3.75 TiB window, an RLE block of 128 KiB.
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x03, 0x00, 0x10, 0x00}
	// A single-segment frame header with an 8-byte content size of 2^62, the same block.
	content := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x03, 0x00, 0x10, 0x00}
	// Blocks of 128 KiB of one byte each, none the last, without a content size.
	endless := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38}, bytes.Repeat([]byte{0x02, 0x00, 0x10, 'x'}, 200)...)
	repeat := func(n int, chunk []byte) (out [][]byte) {
		for range n {
			out = append(out, chunk)
		}
		return out
	}
	tests := []struct {
		name   string
		raw    int64
		chunks [][]byte
		good   bool
	}{
		{"as much as a KiB can honestly hold", 25 * chunkBytes, repeat(25, zeros), true},
		{"a petabyte that is not there", maxRawBytes, repeat(2, zeros), false},
		{"one chunk too few", 26 * chunkBytes, repeat(25, zeros), false},
		{"bomb", chunkBytes, repeat(1, bomb), false},
		{"window", chunkBytes, repeat(1, window), false},
		{"content size", chunkBytes, repeat(1, content), false},
		{"endless blocks", chunkBytes, repeat(1, endless), false},
		{"no zstd", chunkBytes, repeat(1, []byte("abcdefgh")), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMem(t)
			d := hostileShard(t, m, test.raw, test.chunks)
			cost := allocated(func() { _, err = d.Load(t.Context(), 1) })
			if (err == nil) != test.good {
				t.Errorf("error %v", err)
			}
			if !test.good {
				wantErr(t, "Load", err, ErrCorrupt)
			}
			if cost > 64<<20 {
				t.Errorf("it cost %d bytes", cost)
			}
		})
	}
	t.Run("manifests", func(t *testing.T) {
		for _, body := range []string{
			`{"tensors":[` + strings.TrimSuffix(strings.Repeat("{},", 340), ",") + `]`,
			`{"tensors":[{"shape":[` + strings.TrimSuffix(strings.Repeat("1,", 480), ",") + `]}]`,
			`{"values":` + strings.Repeat(`{"a":`, 190) + "1" + strings.Repeat("}", 190),
			`{"x":` + strings.Repeat("[", 1000),
			`{"run":"` + strings.Repeat(`\u0000`, 160) + `"`,
		} {
			if cost := allocated(func() { _, err = parseManifest(sealed(body)) }); err == nil || cost > 1<<20 {
				t.Errorf("%.30s...: error %v, cost %d bytes", body, err, cost)
			}
		}
	})
}

// allocated is how many bytes a function takes from the heap, freed ones included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
