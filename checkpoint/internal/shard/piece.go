package shard

import (
	"fmt"
	"sort"

	"ddpbatch/checkpoint/internal/chunk"
)

// Piece is a run of bytes of one tensor that stands in a shard.
type Piece struct {
	Name   string       // of the tensor; for errors
	Layout chunk.Layout // of the tensor's elements
	Length int64        // raw bytes, a multiple of Layout.Width. A piece without bytes has no chunk
}

// Header is what a shard says about itself. The numbers of its pieces, chunks and raw bytes follow from its pieces.
type Header struct {
	Version       uint32 // 1 or 2; what Write gets must be Version
	Step          int64
	Shard, Shards int // it is shard number Shard, counted from 0, of so many
}

// full adds what follows from the pieces.
func (h Header) full(p *chunking) header {
	return header{
		version: h.Version, step: uint64(h.Step), shard: uint32(h.Shard), shards: uint32(h.Shards),
		pieces: uint32(len(p.pieces)), chunks: uint32(p.chunks()), raw: uint64(p.raw),
	}
}

// RawSize is the size of the shard of these pieces where every chunk is stored raw: exactly that with codec None,
// and the most that it can be otherwise.
func RawSize(pieces []Source) int64 {
	p := mustChunk(piecesOf(pieces))
	return headerBytes + p.raw + int64(p.chunks())*entryBytes + trailerBytes
}

// chunking is how pieces are cut into chunks.
type chunking struct {
	pieces []Piece
	first  []int // the first chunk of each piece, and at the end the number of all chunks
	raw    int64
}

// newChunking keeps pieces. It refuses, with a *Damage, what no shard can hold.
func newChunking(pieces []Piece) (*chunking, error) {
	p := &chunking{pieces: pieces, first: make([]int, len(pieces)+1)}
	for i, piece := range pieces {
		width := int64(piece.Layout.Width)
		if (width != 1 && width != 2 && width != 4 && width != 8) || piece.Length < 0 || piece.Length%width != 0 {
			return nil, p.pieceDamage(i, fmt.Sprintf("%d bytes are no elements of %d", piece.Length, width))
		}
		if piece.Length > maxRawBytes-p.raw {
			return nil, p.pieceDamage(i, "a shard cannot hold so many bytes")
		}
		p.raw += piece.Length
		chunks := int64(p.first[i]) + (piece.Length+chunkBytes-1)/chunkBytes
		if chunks > maxChunks {
			return nil, p.pieceDamage(i, "a shard cannot hold so many chunks")
		}
		p.first[i+1] = int(chunks)
	}
	return p, nil
}

// mustChunk is newChunking for the pieces of a writer, who makes them himself.
func mustChunk(pieces []Piece) *chunking {
	p, err := newChunking(pieces)
	if err != nil {
		panic("shard: pieces that no shard can hold")
	}
	return p
}

func (p *chunking) chunks() int { return p.first[len(p.pieces)] }

// at is where chunk c lies: bytes start to end of a piece.
func (p *chunking) at(c int) (piece int, start, end int64) {
	piece = sort.SearchInts(p.first, c+1) - 1
	start = int64(c-p.first[piece]) * chunkBytes
	return piece, start, min(start+chunkBytes, p.pieces[piece].Length)
}

// pieceDamage is about a piece as a whole.
func (p *chunking) pieceDamage(piece int, detail string) *Damage {
	return &Damage{Piece: piece, Name: p.pieces[piece].Name, Detail: detail}
}

// chunkDamage says that something is wrong with chunk c.
func (p *chunking) chunkDamage(c int, format string, args ...any) *Damage {
	piece, _, _ := p.at(c)
	return p.pieceDamage(piece, p.number(c)+": "+fmt.Sprintf(format, args...))
}

// number is how people count chunk c.
func (p *chunking) number(c int) string {
	piece, _, _ := p.at(c)
	return fmt.Sprintf("chunk %d of %d", c-p.first[piece]+1, p.first[piece+1]-p.first[piece])
}
