package checkpoint

import (
	"context"
	"fmt"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
)

// FindFolder opens the checkpoint in the folder of that name, as Find does, whether it is superseded, set aside or saved again since.
func (d *Dir) FindFolder(ctx context.Context, folder string) (*Checkpoint, error) {
	c, err := d.findFolder(ctx, folder)
	if err != nil {
		return nil, fmt.Errorf("find checkpoint %s: %w", folder, classify(err))
	}
	return c, nil
}

func (d *Dir) findFolder(ctx context.Context, folder string) (*Checkpoint, error) {
	if _, ok := manifest.ParseFolder(folder); !ok {
		return nil, fmt.Errorf("%w: that is not the name of a checkpoint's folder", ErrNone)
	}
	c, err := d.openFolder(ctx, folder, false)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Storage says how a tensor is stored.
type Storage struct {
	Stored int64            // bytes of its chunks on disk
	Codecs map[string]int64 // of them, by method: raw, zstd, planes, and zstd+delta and planes+delta for differences from the base
}

// Storage describes the tensors, in the order of Tensors, by the shards' tables: no data is read.
func (c *Checkpoint) Storage(ctx context.Context) ([]Storage, error) {
	list := make([]Storage, len(c.m.Tensors))
	for i := range list {
		list[i].Codecs = map[string]int64{}
	}
	for i := range c.m.Shards {
		s, err := c.acquire(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("read checkpoint of step %d: %w", c.m.Step, classify(err))
		}
		for k, piece := range s.r.Stats().Pieces {
			t := &list[c.byShard[i][k].Tensor]
			t.Stored += piece.Stored
			for method, n := range piece.ByMethod {
				t.Codecs[codecName(method)] += n
			}
		}
		c.release(i)
	}
	return list, nil
}

func codecName(m chunk.Method) string {
	name := [...]string{chunk.Raw: "raw", chunk.Zstd: "zstd", chunk.Planes: "planes"}[m&^chunk.Delta]
	if m&chunk.Delta != 0 {
		name += "+delta"
	}
	return name
}
