package data

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// hasher is a data set that can add the memory of its rows from first up to, not including, end to a hash.
type hasher interface {
	hash(h *stoppable, first, end int)
}

// Digest is a hash of all rows of d in their order. It tells copies of a data set that differ from
// those that do not, wherever they lie. Data sets of this package are hashed as they lie in memory, at
// the speed of SHA-256: bytes with what they stand for, a text as its bytes. Others are read row by row, and their
// digests are equal to each other's only. A file may be sparse, and take hours: Digest ends early, with ctx's cause, once ctx is done.
func Digest(ctx context.Context, d Dataset) ([sha256.Size]byte, error) {
	spec := d.Spec()
	h := &stoppable{sha256.New(), ctx}
	var text []byte
	for _, n := range []int{
		d.Len(), spec.Inputs, spec.Outputs, spec.Classes, spec.Labels, spec.Symbols,
		spec.Image.Channels, spec.Image.Height, spec.Image.Width,
	} {
		text = binary.LittleEndian.AppendUint64(text, uint64(n))
	}
	h.Write(text)
	hashRows(h, d, 0, d.Len())
	if ctx.Err() != nil {
		return [sha256.Size]byte{}, fmt.Errorf("hash the data: %w", context.Cause(ctx))
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// stoppable is a hash that takes nothing any more once its context is done.
type stoppable struct {
	hash.Hash
	ctx context.Context
}

// Write never fails, as no hash's does.
func (s *stoppable) Write(b []byte) (int, error) {
	const piece = 16 << 20 // bytes: some 10 ms
	for left := b; len(left) > 0 && s.ctx.Err() == nil; {
		n := min(len(left), piece)
		s.Hash.Write(left[:n])
		left = left[n:]
	}
	return len(b), nil
}

func hashRows(h *stoppable, d Dataset, first, end int) {
	if d, ok := d.(hasher); ok {
		d.hash(h, first, end)
		return
	}
	spec := d.Spec()
	values := make([]float32, spec.Inputs+spec.Outputs)
	labels := make([]int, spec.Labels)
	var text []byte
	for i := first; i < end && h.ctx.Err() == nil; i++ {
		d.Read(i, values[:spec.Inputs], values[spec.Inputs:], labels)
		h.Write(bytesOf(values))
		text = text[:0]
		for _, label := range labels {
			text = binary.LittleEndian.AppendUint64(text, uint64(label))
		}
		h.Write(text)
	}
}
