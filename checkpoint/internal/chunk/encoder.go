package chunk

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"

	"ddpbatch/internal/crc32c"
)

const badChunk = "chunk: length of chunk or base does not fit the layout"

// maxHuff0 is the length of the longest plane for Huffman coding. Only the plane of a full chunk with
// elements of one byte is longer.
const maxHuff0 = huff0.BlockSizeMax

// An Encoder encodes chunks, one at a time, in one goroutine. It keeps about 3 MiB of buffers, from the first
// chunk on that it does not leave raw, and allocates nothing more once it has encoded chunks of each kind.
type Encoder struct {
	codec   Codec
	sampler sampler
	huff    huff0.Scratch
	zstd    *zstd.Encoder
	delta   []byte // the chunk XOR the base
	split   []byte // planes that are not stored raw
	out     []byte // what Encode returns
}

// NewEncoder returns an Encoder that may use the methods of c.
func NewEncoder(c Codec) (*Encoder, error) {
	e := &Encoder{codec: c}
	switch c {
	case None:
		return e, nil
	case Auto, ZstdOnly:
	default:
		return nil, fmt.Errorf("make an encoder of chunks: unknown codec %d", c)
	}
	var err error
	e.zstd, err = zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(MaxBytes),
		zstd.WithAllLitEntropyCompression(true), // otherwise it gives up if it finds no repetitions
		zstd.WithEncoderCRC(false))              // the chunk table has one
	if err != nil {
		return nil, fmt.Errorf("make an encoder of chunks: %w", err)
	}
	e.huff.Reuse = huff0.ReusePolicyNone // each chunk is decoded by itself
	return e, nil
}

// outBytes has room for a chunk and for one plane that codes badly, which takes up to 11 bits a byte before huff0 gives
// up, so that no buffer grows.
const outBytes = MaxBytes + MaxBytes*11/8 + 4096

// Encode returns the bytes to store for a chunk, at most len(raw), and the method that made them. For method Raw they are raw
// itself, and otherwise valid until the next call. They are a function of raw, base, layout and codec, and do not depend on what
// was encoded before, the machine or the time (another version of klauspost/compress may return others).
//
// raw must have 1 to MaxBytes bytes, a multiple of the width, or Encode panics. base is nil, or the chunk that a reader
// will have at hand, of the same length: Encode uses it if that makes the chunk smaller.
func (e *Encoder) Encode(raw, base []byte, l Layout) (stored []byte, m Method) {
	how, flag, left := e.look(raw, base, l)
	if left {
		return raw, Raw
	}
	if e.out == nil {
		e.split, e.out = make([]byte, MaxBytes), make([]byte, 0, outBytes)
	}
	src := raw
	e.out = e.out[:0]
	if flag&Delta != 0 {
		if e.delta == nil {
			e.delta = make([]byte, MaxBytes)
		}
		subtle.XORBytes(e.delta, raw, base)
		src = e.delta[:len(raw)]
		e.out = binary.LittleEndian.AppendUint32(e.out, crc32c.Checksum(raw))
	}
	if e.codec == ZstdOnly {
		e.out, m = e.zstd.EncodeAll(src, e.out), Zstd
	} else {
		e.out, m = e.planes(e.out, src, how, l), Planes
	}
	if len(e.out) >= len(raw) {
		return raw, Raw
	}
	return e.out, m | flag
}

// LeavesRaw reports whether Encode would leave a chunk raw after looking only at the sample. It is for callers that pass a chunk
// to another goroutine's Encoder otherwise. Encode may still leave a chunk raw after it has tried to encode it.
func (e *Encoder) LeavesRaw(raw, base []byte, l Layout) bool {
	_, _, left := e.look(raw, base, l)
	return left
}

// minTotalGain: a chunk is left raw unless at least a 128th of it would be saved.
const minTotalGain = 128

// look chooses from samples how to encode a chunk, and whether to encode the chunk or its difference from the base, which flag
// says. left says that the chunk stays raw.
func (e *Encoder) look(raw, base []byte, l Layout) (p planeChoice, flag Method, left bool) {
	if !l.fits(len(raw)) || base != nil && len(base) != len(raw) {
		panic(badChunk)
	}
	if e.codec == None {
		return p, 0, true
	}
	if e.codec == ZstdOnly && base == nil {
		return p, 0, false
	}
	p = e.sampler.choose(raw, nil, l)
	if base != nil {
		q := e.sampler.choose(raw, base, l)
		q.cost += Delta.sumBytes()
		if q.cost < p.cost {
			p, flag = q, Delta
		}
	}
	return p, flag, e.codec == Auto && p.cost > len(raw)-len(raw)/minTotalGain
}

// planes splits src and appends its planes, each encoded. Planes that stay raw and come before all others are split
// directly to the place where they are stored. out has room for them.
func (e *Encoder) planes(out, src []byte, how planeChoice, l Layout) []byte {
	n := len(src) / l.Width
	entries := len(out)
	head := entries + l.Width*entryBytes
	first := 0
	for first < l.Width && how.codec[first] == PlaneRaw {
		first++
	}
	out = out[:head+first*n]
	var p planes
	p.cut(e.split, l.Width, n)
	for k := range first {
		p[k] = out[head+k*n : head+(k+1)*n]
		putPlaneEntry(out[entries+k*entryBytes:], PlaneRaw, n)
	}
	split(&p, src, l, &best)
	for k := first; k < l.Width; k++ {
		start := len(out)
		var codec PlaneCodec
		out, codec = e.plane(out, p[k], how.codec[k])
		putPlaneEntry(out[entries+k*entryBytes:], codec, len(out)-start)
	}
	return out
}

// plane appends one plane. It uses the codec that the sample suggests if the whole plane confirms it.
func (e *Encoder) plane(out, p []byte, codec PlaneCodec) ([]byte, PlaneCodec) {
	start := len(out)
	switch codec {
	case PlaneConstant:
		if bytes.Equal(p[1:], p[:len(p)-1]) {
			return append(out, p[0]), PlaneConstant
		}
		codec = PlaneZstd // nearly constant
	case PlaneHuff0:
		e.huff.Out = out[start:start] // it writes there
		coded, _, err := huff0.Compress4X(p, &e.huff)
		if err == nil && len(coded) < len(p) {
			return append(out, coded...), PlaneHuff0
		}
		// The sample was wrong, or the plane is too short for a table.
		return append(out, p...), PlaneRaw
	}
	if codec == PlaneZstd {
		if out = e.zstd.EncodeAll(p, out); len(out)-start < len(p) {
			return out, PlaneZstd
		}
	}
	return append(out[:start], p...), PlaneRaw
}
