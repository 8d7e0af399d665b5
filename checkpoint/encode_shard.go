package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/checkpoint/internal/shard"
)

// EncodeShard writes the bytes that WriteShard gives shard i of n to w instead, for a place from where CopyShard will put them into a
// draft. Of the info, size, raw bytes and checksum are set.
func (d *Dir) EncodeShard(ctx context.Context, w io.Writer, step int64, i, n int, pieces []Piece) (ShardInfo, error) {
	if i < 0 || i >= n || n > manifest.MaxShards || step < 0 || step > maxStep {
		return ShardInfo{}, errors.New("there is no such shard")
	}
	sources, raw, err := sourcesOf(pieces)
	if err != nil {
		return ShardInfo{}, err
	}
	header := shard.Header{Version: shard.Version, Step: step, Shard: i, Shards: n}
	sum, err := shard.Write(ctx, w, header, sources, shard.WriteOptions{Codec: d.codec, Workers: d.workers})
	if err != nil {
		return ShardInfo{}, fmt.Errorf("encode shard %d of %d of step %d: %w", i, n, step, err)
	}
	return ShardInfo{Size: sum.Size, Raw: raw, CRC: sum.CRC}, nil
}
