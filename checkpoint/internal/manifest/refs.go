package manifest

import (
	"cmp"
	"slices"
)

// Ref is a piece of tensor Tensors[Tensor].
type Ref struct {
	Tensor int
	Piece
}

// ByShard returns the pieces of every shard by offset, which is the order in which they stand in
// the file. Every piece of m must name a shard that is there, as in any manifest from Parse.
func (m *Manifest) ByShard() [][]Ref {
	shards := make([][]Ref, len(m.Shards))
	for t, tensor := range m.Tensors {
		for _, p := range tensor.Pieces {
			shards[p.Shard] = append(shards[p.Shard], Ref{Tensor: t, Piece: p})
		}
	}
	for _, refs := range shards {
		// Stable: in version 1 an empty piece stands at the offset of the next.
		slices.SortStableFunc(refs, func(a, b Ref) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return shards
}
