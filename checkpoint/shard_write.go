package checkpoint

import (
	"context"
	"hash/crc32"
	"io"
)

// shardWriter writes one shard and keeps the sums that the table, the trailer and the manifest
// need.
type shardWriter struct {
	w     io.Writer
	enc   *encoder
	size  int64
	crc   uint32
	table []byte
}

// writeShard writes tensors as shard number header.shard to w, and returns the file's size and
// CRC-32C. It looks at the context before every chunk.
func writeShard(ctx context.Context, w io.Writer, header shardHeader, tensors []Tensor, enc *encoder) (int64, uint32, error) {
	s := &shardWriter{w: w, enc: enc}
	if err := s.write(header.encode()); err != nil {
		return 0, 0, err
	}
	for _, t := range tensors {
		if err := s.tensor(ctx, t.Data); err != nil {
			return 0, 0, err
		}
	}
	trailer := encodeTrailer(s.size, int64(len(s.table)), crc32.Checksum(s.table, castagnoli))
	if err := s.write(s.table); err != nil {
		return 0, 0, err
	}
	if err := s.write(trailer); err != nil {
		return 0, 0, err
	}
	return s.size, s.crc, nil
}

func (s *shardWriter) tensor(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw := data[:min(chunkBytes, len(data))]
		data = data[len(raw):]
		stored, codec := s.enc.encode(raw)
		entry := chunkEntry{
			stored: uint32(len(stored)),
			raw:    uint32(len(raw)),
			crc:    crc32.Checksum(stored, castagnoli),
			codec:  codec,
		}
		s.table = entry.append(s.table)
		if err := s.write(stored); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardWriter) write(p []byte) error {
	s.crc = crc32.Update(s.crc, castagnoli, p)
	s.size += int64(len(p))
	_, err := s.w.Write(p)
	return err
}

// planShard lays the tensors of a state into shard 0 of 1: their records, and the header.
func planShard(s *State) (shardHeader, []tensorRecord) {
	h := shardHeader{version: formatVersion, step: uint64(s.Step), shards: 1, tensors: uint32(len(s.Tensors))}
	records := make([]tensorRecord, len(s.Tensors))
	for i, t := range s.Tensors {
		length := int64(len(t.Data))
		records[i] = tensorRecord{Name: t.Name, DType: t.DType, Shape: t.Shape, Offset: int64(h.raw), Length: length}
		h.raw += uint64(length)
		h.chunks += uint32(chunkCount(length))
	}
	return h, records
}
