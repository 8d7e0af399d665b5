package distributed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/crc32c"
)

// errLocal marks what is wrong with a node's own disk, not with the shared folder.
var errLocal = errors.New("node-local disk")

// drain copies a shard into a draft in the shared folder; what it reads must be what was written.
func (t *tier) drain(ctx context.Context, l *local, draft *checkpoint.Draft) (checkpoint.ShardInfo, error) {
	f, err := t.fs.Open(l.shardPath())
	if err != nil {
		return checkpoint.ShardInfo{}, fmt.Errorf("%w: %w", errLocal, err)
	}
	defer f.Close()
	info, err := draft.CopyShard(ctx, l.record.Shard, l.record.Shards, f, l.record.Info)
	if err != nil && ctx.Err() == nil && !sound(f, l.record.Info) {
		err = fmt.Errorf("%w: %w", errLocal, err)
	}
	return info, err
}

// sound says whether a shard can be read and is what was written.
func sound(f io.ReaderAt, info checkpoint.ShardInfo) bool {
	var sum crc32c.Digest
	n, err := io.Copy(&sum, io.NewSectionReader(f, 0, info.Size))
	return err == nil && n == info.Size && sum.Sum32() == info.CRC
}
