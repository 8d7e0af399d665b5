package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/crc32c"
)

// copyBytes is read and written at a time.
const copyBytes = 1 << 20

// CopyShard puts a shard that has been written elsewhere into the draft: of its info, size and
// checksum are checked against what is read, and the file name is set anew. It is durable when
// the error is nil.
func (dr *Draft) CopyShard(ctx context.Context, i, n int, from io.ReaderAt, info ShardInfo) (ShardInfo, error) {
	info, err := dr.copyShard(ctx, i, n, from, info)
	if err != nil {
		return ShardInfo{}, fmt.Errorf("copy shard %d of %d of step %d to %s: %w", i, n, dr.step, dr.path(), classify(err))
	}
	return info, nil
}

func (dr *Draft) copyShard(ctx context.Context, i, n int, from io.ReaderAt, info ShardInfo) (ShardInfo, error) {
	if i < 0 || i >= n || n > manifest.MaxShards {
		return ShardInfo{}, errors.New("there is no such shard")
	}
	name := dr.tag.ShardName(i, n)
	if err := dr.begin(name); err != nil {
		return ShardInfo{}, err
	}
	file := &durable{
		d: dr.d, dir: dr.path(), tmp: name + manifest.TmpSuffix, name: name, size: info.Size,
		beforeRename: ctx.Err, patient: !dr.owner,
	}
	err := file.write(ctx, func(w io.Writer) error { return copyAll(ctx, w, from, info) })
	if err != nil {
		return ShardInfo{}, err
	}
	dr.finish(name)
	info.File, info.Write, info.Sync = name, file.writeTime.Seconds(), file.settleTime.Seconds()
	return info, nil
}

func copyAll(ctx context.Context, w io.Writer, from io.ReaderAt, info ShardInfo) error {
	buf, crc := make([]byte, min(copyBytes, max(info.Size, 0))), uint32(0)
	for at := int64(0); at < info.Size; at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf = buf[:min(int64(len(buf)), info.Size-at)]
		if n, err := from.ReadAt(buf, at); n < len(buf) {
			return fmt.Errorf("read %d bytes at %d of the shard: %w", len(buf), at, err)
		}
		crc = crc32c.Update(crc, buf)
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	if crc != info.CRC {
		return fmt.Errorf("the shard's checksum is %08x, not %08x as when it was written", crc, info.CRC)
	}
	return nil
}
