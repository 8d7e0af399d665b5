package checkpoint

import (
	"context"
	"fmt"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/shard"
)

// Storage says how a tensor is stored.
type Storage struct {
	Stored int64            // bytes of its chunks on disk
	Delta  int64            // of them, those of chunks that are differences from the base
	Codecs map[string]int64 // of them, by what coded them, chunks or planes: raw, constant, huff0, zstd; less the heads that say how planes are stored
}

// Storage describes the tensors, in the order of Tensors, by the shards' tables and the first bytes of
// chunks: no data is read.
func (c *Checkpoint) Storage(ctx context.Context) ([]Storage, error) {
	list := make([]Storage, len(c.m.Tensors))
	for i := range list {
		list[i].Codecs = map[string]int64{}
	}
	for i := range c.m.Shards {
		err := c.use(ctx, i, func(r *shard.Reader) error {
			planes, err := r.PlaneStats(ctx)
			if err != nil {
				return err
			}
			for k, piece := range r.Stats().Pieces {
				list[c.byShard[i][k].Tensor].add(piece, planes[k])
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read checkpoint of step %d: %w", c.m.Step, classify(err))
		}
	}
	return list, nil
}

func (s *Storage) add(piece shard.PieceStats, planes map[chunk.PlaneCodec]int64) {
	s.Stored += piece.Stored
	for method, n := range piece.ByMethod {
		if method&chunk.Delta != 0 {
			s.Delta += n
		}
		switch method &^ chunk.Delta {
		case chunk.Raw:
			s.Codecs[chunk.PlaneRaw.String()] += n
		case chunk.Zstd:
			s.Codecs[chunk.PlaneZstd.String()] += n
		}
	}
	for codec, n := range planes {
		s.Codecs[codec.String()] += n
	}
}
