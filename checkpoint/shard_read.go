package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// shardReader reads one shard, checking everything: sizes first, then the table, then each
// chunk, and the whole file's checksum at the end.
type shardReader struct {
	path    string
	file    vfs.File
	record  shardRecord
	tensors []tensorRecord // those of this shard, in its order
	table   []chunkEntry
	header  []byte // kept for the whole file's checksum
	tail    []byte // chunk table and trailer, likewise
	buf     []byte // a compressed chunk
}

// openShard opens shard i of a manifest and checks all but the chunks.
func (d *Dir) openShard(m *manifest, i int) (*shardReader, error) {
	r := &shardReader{record: m.Shards[i]}
	r.path = filepath.Join(d.stepPath(m.Step), r.record.File)
	for _, t := range m.Tensors {
		if t.Shard == i {
			r.tensors = append(r.tensors, t)
		}
	}
	f, err := d.fs.Open(r.path)
	if err != nil {
		return nil, err
	}
	r.file = f
	if err := r.readFrame(m, i); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// readFrame reads header, trailer and table. The table is allocated only once the file is known
// to be long enough for it.
func (r *shardReader) readFrame(m *manifest, i int) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	size := r.record.Size
	if info.Size() != size {
		return corrupt(r.path, "it is %d bytes long, the manifest says %d", info.Size(), size)
	}
	if r.header, err = r.read(0, headerBytes); err != nil {
		return err
	}
	header, err := parseHeader(r.header)
	if err != nil {
		return judge(r.path, err)
	}
	if want := r.expect(m, i); header != want {
		return corrupt(r.path, "its header is %+v, the manifest asks for %+v", header, want)
	}
	trailer, err := r.read(size-trailerBytes, trailerBytes)
	if err != nil {
		return err
	}
	offset, crc, err := parseTrailer(trailer, size, int64(header.chunks))
	if err != nil {
		return corrupt(r.path, "%v", err)
	}
	if r.tail, err = r.read(offset, int(size-offset)); err != nil {
		return err
	}
	table := r.tail[:len(r.tail)-trailerBytes]
	if got := crc32.Checksum(table, castagnoli); got != crc {
		return corrupt(r.path, "the chunk table's checksum is %v, the trailer says %v", checksum(got), checksum(crc))
	}
	if r.table, err = parseTable(table, r.tensors, offset-headerBytes); err != nil {
		return corrupt(r.path, "%v", err)
	}
	return nil
}

// expect is the header that the manifest implies.
func (r *shardReader) expect(m *manifest, i int) shardHeader {
	h := shardHeader{
		version: formatVersion, step: uint64(m.Step), shard: uint32(i), shards: uint32(len(m.Shards)),
		tensors: uint32(len(r.tensors)), raw: uint64(r.record.Raw),
	}
	for _, t := range r.tensors {
		h.chunks += uint32(chunkCount(t.Length))
	}
	return h
}

// chunkSink returns where n bytes go that stand at an offset in the data of a tensor of one
// shard, counted within the shard.
type chunkSink func(tensor int, offset, n int64) []byte

// readChunks decodes every chunk into its place, and compares the whole file's checksum.
func (r *shardReader) readChunks(ctx context.Context, into chunkSink) error {
	dec, err := newDecoder()
	if err != nil {
		return err
	}
	defer dec.close()
	sum := crc32.Checksum(r.header, castagnoli)
	position, table := int64(headerBytes), r.table
	for i, t := range r.tensors {
		for offset := int64(0); offset < t.Length; offset += chunkBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			entry := table[0]
			dst := into(i, offset, int64(entry.raw))
			stored, err := r.readChunk(dec, entry, position, dst)
			if err != nil {
				return r.blame(err, t, offset)
			}
			sum = crc32.Update(sum, castagnoli, stored)
			position += int64(entry.stored)
			table = table[1:]
		}
	}
	sum = crc32.Update(sum, castagnoli, r.tail)
	if got := checksum(sum); got != r.record.CRC {
		return corrupt(r.path, "the file's checksum is %v, the manifest says %v", got, r.record.CRC)
	}
	return nil
}

// readChunk fills dst with one chunk, and returns its stored bytes.
func (r *shardReader) readChunk(dec *decoder, e chunkEntry, position int64, dst []byte) ([]byte, error) {
	stored := dst // a raw chunk is read in place
	if e.codec != chunkRaw {
		if r.buf == nil {
			r.buf = make([]byte, chunkBytes)
		}
		stored = r.buf[:e.stored]
	}
	if err := r.readInto(stored, position); err != nil {
		return nil, err
	}
	if got := crc32.Checksum(stored, castagnoli); got != e.crc {
		return nil, corrupt(r.path, "its checksum is %v, the chunk table says %v", checksum(got), checksum(e.crc))
	}
	if e.codec != chunkRaw {
		if err := dec.decode(dst, stored); err != nil {
			return nil, corrupt(r.path, "it does not decompress: %v", err)
		}
	}
	return stored, nil
}

// blame adds to an error whose chunk it is about.
func (r *shardReader) blame(err error, t tensorRecord, offset int64) error {
	chunk := fmt.Sprintf("chunk %d of %d", offset/chunkBytes+1, chunkCount(t.Length))
	if bad, ok := errors.AsType[*CorruptError](err); ok {
		return &CorruptError{Path: r.path, Tensor: t.Name, Detail: chunk + ": " + bad.Detail}
	}
	return fmt.Errorf("%s of tensor %q: %w", chunk, t.Name, err)
}

func (r *shardReader) read(offset int64, n int) ([]byte, error) {
	b := make([]byte, n)
	return b, r.readInto(b, offset)
}

func (r *shardReader) readInto(b []byte, offset int64) error {
	n, err := r.file.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return corrupt(r.path, "it ends at byte %d", offset+int64(n))
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(b), offset, err)
}
