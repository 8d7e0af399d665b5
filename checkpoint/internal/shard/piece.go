package shard

import (
	"fmt"
	"sort"

	"ddpbatch/checkpoint/internal/chunk"
)

// Piece is a run of bytes of one tensor in a shard.
type Piece struct {
	Name   string       // of the tensor; for errors
	Layout chunk.Layout // of the tensor's elements
	Length int64        // raw bytes, a multiple of Layout.Width. An empty piece has no chunk
}

// Header holds the fields of a shard's header that do not follow from its pieces.
type Header struct {
	Version       uint32 // 1 or 2; Write requires Version
	Step          int64
	Shard, Shards int // the shard's number, counted from 0, and the number of shards
}

// full adds the fields that follow from the pieces.
func (h Header) full(p *chunking) header {
	return header{
		version: h.Version, step: uint64(h.Step), shard: uint32(h.Shard), shards: uint32(h.Shards),
		pieces: uint32(len(p.pieces)), chunks: uint32(p.chunks()), raw: uint64(p.raw),
	}
}

// RawSize returns the size of the shard of these pieces if every chunk is stored raw. With codec None that is the exact size,
// with other codecs the maximum.
func RawSize(pieces []Source) int64 {
	p := mustChunk(piecesOf(pieces))
	return headerBytes + p.raw + int64(p.chunks())*entryBytes + trailerBytes
}

// chunking describes how pieces are cut into chunks.
type chunking struct {
	pieces []Piece
	first  []int // the first chunk of each piece, and at the end the total number of chunks
	raw    int64
}

// newChunking retains pieces. It returns a *Damage for pieces that no shard can hold.
func newChunking(pieces []Piece) (*chunking, error) {
	p := &chunking{pieces: pieces, first: make([]int, len(pieces)+1)}
	for i, piece := range pieces {
		width := int64(piece.Layout.Width)
		if (width != 1 && width != 2 && width != 4 && width != 8) || piece.Length < 0 || piece.Length%width != 0 {
			return nil, p.pieceDamage(i, fmt.Sprintf("%d bytes are not whole elements of %d bytes", piece.Length, width))
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

// mustChunk is newChunking for the pieces of a writer, which must be valid.
func mustChunk(pieces []Piece) *chunking {
	p, err := newChunking(pieces)
	if err != nil {
		panic("shard: pieces that no shard can hold")
	}
	return p
}

func (p *chunking) chunks() int { return p.first[len(p.pieces)] }

// at returns the piece that chunk c is in, and the range of its bytes there.
func (p *chunking) at(c int) (piece int, start, end int64) {
	piece = sort.SearchInts(p.first, c+1) - 1
	start = int64(c-p.first[piece]) * chunkBytes
	return piece, start, min(start+chunkBytes, p.pieces[piece].Length)
}

// pieceDamage returns a Damage to a piece as a whole.
func (p *chunking) pieceDamage(piece int, detail string) *Damage {
	return &Damage{Piece: piece, Name: p.pieces[piece].Name, Detail: detail}
}

// chunkDamage returns a Damage to chunk c.
func (p *chunking) chunkDamage(c int, format string, args ...any) *Damage {
	piece, _, _ := p.at(c)
	return p.pieceDamage(piece, p.number(c)+": "+fmt.Sprintf(format, args...))
}

// number returns the number of chunk c within its piece, for errors.
func (p *chunking) number(c int) string {
	piece, _, _ := p.at(c)
	return fmt.Sprintf("chunk %d of %d", c-p.first[piece]+1, p.first[piece+1]-p.first[piece])
}
