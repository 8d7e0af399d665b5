package chunk

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ddpbatch/internal/crc32c"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"
)

// A Decoder decodes chunks, one at a time, in one goroutine. It keeps less than 1 MiB of buffers, whatever
// it decodes.
type Decoder struct {
	huff  huff0.Scratch
	zstd  *zstd.Decoder
	split []byte // planes that are not stored as they are
}

// NewDecoder returns a Decoder. The caller must Close it to free its memory.
func NewDecoder() (*Decoder, error) {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxBytes),
		zstd.WithDecoderMaxWindow(MaxBytes),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("make a decoder of chunks: %w", err)
	}
	return &Decoder{zstd: z, split: make([]byte, MaxBytes)}, nil
}

// Close frees the decoder's memory. The decoder cannot be used afterward.
func (d *Decoder) Close() { d.zstd.Close() }

// Decode fills dst, which has the chunk's raw length, from the stored bytes. base is the base's chunk, of the same
// length, for methods with Delta, and is ignored for others. dst must not overlap either of them.
//
// If the bytes do not have the format, Decode returns an error and the contents of dst are undefined. It does not detect damage that leaves
// the bytes well formed: that takes the checksum of the stored bytes. With Delta, the result has a checksum, so that a
// base other than the encoder's is detected, too.
func (d *Decoder) Decode(dst, stored []byte, m Method, l Layout, base []byte) error {
	if !m.Plausible(len(stored), len(dst), l) {
		return fmt.Errorf("%d bytes by method %#x cannot be a chunk of %d bytes with elements of %d",
			len(stored), byte(m), len(dst), l.Width)
	}
	if m&Delta != 0 && len(base) != len(dst) {
		return fmt.Errorf("a chunk of %d bytes is the difference from a base, but its base has %d", len(dst), len(base))
	}
	sum, stored := stored[:m.sumBytes()], stored[m.sumBytes():]
	switch m &^ Delta {
	case Raw:
		copy(dst, stored)
	case Zstd:
		if err := d.frame(dst, stored); err != nil {
			return err
		}
	case Planes:
		if err := d.planes(dst, stored, l); err != nil {
			return err
		}
	}
	if m&Delta != 0 {
		subtle.XORBytes(dst, dst, base)
		if got, want := crc32c.Checksum(dst), binary.LittleEndian.Uint32(sum); got != want {
			return fmt.Errorf("XORed with the base it has the checksum %08x, not %08x: the base is another one or damaged", got, want)
		}
	}
	return nil
}

// frame decodes one zstd frame to exactly the length of dst.
func (d *Decoder) frame(dst, stored []byte) error {
	if err := checkFrame(stored); err != nil {
		return fmt.Errorf("decode a zstd frame: %w", err)
	}
	out, err := d.zstd.DecodeAll(stored, dst[:0:len(dst)])
	if err != nil {
		return fmt.Errorf("decode a zstd frame: %w", err)
	}
	if len(out) != len(dst) {
		return fmt.Errorf("a zstd frame holds %d bytes, not %d", len(out), len(dst))
	}
	if &out[0] != &dst[0] { // it may have decoded into other memory, still of at most this length
		copy(dst, out)
	}
	return nil
}

// planes decodes each plane and joins them. Planes that are stored raw are joined without being copied first.
func (d *Decoder) planes(dst, stored []byte, l Layout) error {
	n := len(dst) / l.Width
	var p planes
	p.cut(d.split, l.Width, n)
	rest := stored[l.Width*entryBytes:]
	for k := range l.Width {
		codec, length := planeEntry(stored[k*entryBytes:])
		if length > len(rest) {
			return fmt.Errorf("plane %d should have %d bytes, but only %d are left", k, length, len(rest))
		}
		coded := rest[:length:length]
		rest = rest[length:]
		if codec == PlaneRaw && length == n {
			p[k] = coded
		} else if err := d.plane(p[k], coded, codec); err != nil {
			return fmt.Errorf("plane %d: %w", k, err)
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes more than the planes have", len(rest))
	}
	join(dst, &p, l, &best)
	return nil
}

// plane decodes a plane to exactly the length of dst.
func (d *Decoder) plane(dst, coded []byte, codec PlaneCodec) error {
	switch {
	case codec == PlaneConstant && len(coded) == 1:
		fill(dst, coded[0])
		return nil
	case codec == PlaneHuff0 && len(coded) < len(dst):
		return d.huffman(dst, coded)
	case codec == PlaneZstd && len(coded) < len(dst):
		return d.frame(dst, coded)
	}
	return fmt.Errorf("%d bytes by codec %d cannot be a plane of %d", len(coded), codec, len(dst))
}

func (d *Decoder) huffman(dst, coded []byte) error {
	if len(dst) > maxHuff0 {
		return errors.New("decode Huffman codes: the plane is too long")
	}
	s, streams, err := huff0.ReadTable(coded, &d.huff)
	if err != nil {
		return fmt.Errorf("read a Huffman table: %w", err)
	}
	// The capacity of the destination limits the result to the length that it must have.
	if _, err := s.Decoder().Decompress4X(dst[:0:len(dst)], streams); err != nil {
		return fmt.Errorf("decode Huffman codes: %w", err)
	}
	return nil
}

func fill(b []byte, v byte) {
	b[0] = v
	for i := 1; i < len(b); i *= 2 {
		copy(b[i:], b[:i])
	}
}

var errNotOneFrame = errors.New("the bytes are not one frame, whole and without a dictionary")

// checkFrame refuses bytes that are not exactly one zstd frame without a dictionary (RFC 8878, 3.1.1). A zstd decoder accepts
// several frames, one after the other, and skips so-called skippable frames: different files could then mean the same, and hold
// hidden data.
func checkFrame(b []byte) error {
	var h zstd.Header
	if err := h.Decode(b); err != nil {
		return err
	}
	if h.Skippable || h.DictionaryID != 0 {
		return errNotOneFrame
	}
	b = b[h.HeaderSize:]
	for last := false; !last; {
		if len(b) < blockHeaderBytes {
			return io.ErrUnexpectedEOF
		}
		// One bit marks the last block, two are its type, the rest is its size.
		head := uint(b[0]) | uint(b[1])<<8 | uint(b[2])<<16
		b = b[blockHeaderBytes:]
		last = head&1 != 0
		size := head >> 3
		if head>>1&3 == repeated {
			size = 1
		}
		if size > uint(len(b)) {
			return io.ErrUnexpectedEOF
		}
		b = b[size:]
	}
	sum := 0
	if h.HasCheckSum {
		sum = 4
	}
	if len(b) != sum {
		return errNotOneFrame
	}
	return nil
}

const (
	blockHeaderBytes = 3
	repeated         = 1 // a block type: one byte, and how often it is repeated
)
