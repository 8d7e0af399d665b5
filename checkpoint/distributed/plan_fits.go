package distributed

import (
	"fmt"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/manifest"
)

// roomForValues is kept free in a manifest for what differs from save to save: values, metrics, names, sizes.
const roomForValues = 1 << 20

// fits tells whether a manifest can hold the plan, so that a state of too many parts fails before training, not at the first save.
func (p plan) fits(place checkpoint.Place, writers []int, loads []int64) error {
	m := manifest.Manifest{Run: place.Run, Attempt: place.Attempt, World: len(loads), Created: time.Unix(0, 0).UTC()}
	for _, t := range p.tensors(writers) {
		tensor := manifest.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}
		for _, e := range t.Extents {
			tensor.Pieces = append(tensor.Pieces, manifest.Piece(e))
		}
		m.Tensors = append(m.Tensors, tensor)
	}
	for i, rank := range writers {
		name := manifest.Tag{Attempt: place.Attempt}.ShardName(i, len(writers))
		m.Shards = append(m.Shards, manifest.Shard{File: name, Size: manifest.MaxShardBytes, Raw: loads[rank]})
	}
	data, err := m.Encode()
	if err == nil && len(data) > manifest.MaxBytes-roomForValues {
		err = fmt.Errorf("it would take %d bytes, of %d", len(data), manifest.MaxBytes)
	}
	if err != nil {
		return fmt.Errorf("no manifest can hold the %d arrays of %d ranks: %w; join small arrays", len(p), len(loads), err)
	}
	return nil
}
