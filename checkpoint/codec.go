package checkpoint

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

const (
	codecZstd = "zstd"
	codecNone = "none"
)

// How a chunk is stored, as the chunk table has it.
const (
	chunkRaw  = 0
	chunkZstd = 1 // one zstd frame (RFC 8878) with its content size and without a checksum
)

func parseCodec(name string) (string, error) {
	switch name {
	case "", "auto", codecZstd:
		return codecZstd, nil
	case codecNone:
		return codecNone, nil
	}
	return "", fmt.Errorf(`codec is %q: must be "auto", "zstd" or "none"`, name)
}

// encoder compresses chunks, one at a time. The same chunks give the same bytes, whatever came
// before them.
type encoder struct {
	zstd *zstd.Encoder // nil: codec none
	buf  []byte
}

func newEncoder(codec string) (*encoder, error) {
	if codec == codecNone {
		return &encoder{}, nil
	}
	z, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(chunkBytes),
		zstd.WithEncoderCRC(false)) // the chunk table has one
	if err != nil {
		return nil, err
	}
	return &encoder{zstd: z}, nil
}

// encode returns what to store for a chunk: raw itself where nothing is gained. The result is
// valid until the next call.
func (e *encoder) encode(raw []byte) (stored []byte, codec byte) {
	if e.zstd != nil {
		e.buf = e.zstd.EncodeAll(raw, e.buf[:0])
		if len(e.buf) < len(raw) {
			return e.buf, chunkZstd
		}
	}
	return raw, chunkRaw
}

// decoder gives chunks back. It allocates no more than a chunk, whatever a frame asks for.
type decoder struct{ zstd *zstd.Decoder }

func newDecoder() (*decoder, error) {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(chunkBytes),
		zstd.WithDecoderMaxWindow(chunkBytes),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	return &decoder{zstd: z}, nil
}

func (d *decoder) close() { d.zstd.Close() }

// decode fills dst, which has exactly the chunk's raw length.
func (d *decoder) decode(dst, stored []byte) error {
	out, err := d.zstd.DecodeAll(stored, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	if len(out) != len(dst) {
		return fmt.Errorf("it decodes to %d bytes, not %d", len(out), len(dst))
	}
	if &out[0] != &dst[0] {
		copy(dst, out)
	}
	return nil
}
