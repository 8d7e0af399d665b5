package shard

import (
	"context"

	"ddpbatch/checkpoint/internal/chunk"
)

// Stats says how each piece is stored.
type Stats struct{ Pieces []PieceStats }

// PieceStats says how one piece is stored. It comes from the chunk table: no chunk is read.
type PieceStats struct {
	Chunks      int
	Raw, Stored int64                  // bytes
	ByMethod    map[chunk.Method]int64 // stored bytes
}

// Stats describes r.
func (r *Reader) Stats() Stats {
	s := Stats{make([]PieceStats, len(r.plan.pieces))}
	for i := range s.Pieces {
		p := PieceStats{Raw: r.plan.pieces[i].Length, ByMethod: map[chunk.Method]int64{}}
		for _, c := range r.chunks[r.plan.first[i]:r.plan.first[i+1]] {
			p.Chunks++
			p.Stored += int64(c.stored)
			p.ByMethod[c.method] += int64(c.stored)
		}
		s.Pieces[i] = p
	}
	return s
}

// PlaneStats says for each piece how many bytes the planes of its chunks take, by their codec. It reads the first bytes
// of each chunk of method Planes, up to 36, and does not compare checksums, which cover whole chunks. Errors are Read's.
func (r *Reader) PlaneStats(ctx context.Context) ([]map[chunk.PlaneCodec]int64, error) {
	all := make([]map[chunk.PlaneCodec]int64, len(r.plan.pieces))
	for i, piece := range r.plan.pieces {
		all[i] = map[chunk.PlaneCodec]int64{}
		for c := r.plan.first[i]; c < r.plan.first[i+1]; c++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			planes, err := r.planesOf(c, piece.Layout)
			if err != nil {
				return nil, err
			}
			for _, p := range planes {
				all[i][p.Codec] += int64(p.Stored)
			}
		}
	}
	return all, nil
}

// planesOf is how the planes of chunk c are stored; none where it has none.
func (r *Reader) planesOf(c int, l chunk.Layout) ([]chunk.Plane, error) {
	e := r.chunks[c]
	n := e.method.HeadBytes(l)
	if n == 0 {
		return nil, nil
	}
	head := make([]byte, n) // of a plausible chunk, which is longer
	if n, err := readFull(r.file, head, e.offset); err != nil {
		return nil, r.readFailed(c, e.offset+int64(n), err)
	}
	planes, err := e.method.ParseHead(head, int(e.stored), l)
	if err != nil {
		return nil, r.plan.blame(c, "it does not decode: %v", err)
	}
	return planes, nil
}
