package chunk

import (
	"fmt"
)

// MaxBytes is the length of the longest chunk. All chunks of a piece but its last have this length.
const MaxBytes = 256 << 10

// Layout says what the bytes of a chunk are: little-endian elements of Width bytes.
type Layout struct {
	Width int  // 1, 2, 4 or 8
	Float bool // floating point: sign, exponent and mantissa from the top bit down
}

// A Method is how a chunk is stored. The values are those of the chunk table (docs/format.md).
type Method byte

const (
	Raw    Method = 0    // the bytes themselves
	Zstd   Method = 1    // one zstd frame
	Planes Method = 2    // byte planes, each with a codec of its own
	Delta  Method = 0x80 // a flag: what Zstd or Planes decode to is XORed with the base's chunk; see sumBytes
)

// A Codec selects which methods an Encoder may use.
type Codec byte

const (
	Auto     Codec = iota // planes if they make the chunk smaller, chosen by sampling the data
	ZstdOnly              // one zstd frame if it makes the chunk smaller
	None                  // everything raw
)

// ParseCodec returns the codec that a user's name stands for: auto (or an empty name), zstd or none.
func ParseCodec(name string) (Codec, error) {
	switch name {
	case "", "auto":
		return Auto, nil
	case "zstd":
		return ZstdOnly, nil
	case "none":
		return None, nil
	}
	return 0, fmt.Errorf(`codec is %.80q: must be "auto", "zstd" or "none"`, name)
}

// fits reports whether n bytes can be a chunk of this layout.
func (l Layout) fits(n int) bool {
	switch l.Width {
	case 1, 2, 4, 8:
		return 0 < n && n <= MaxBytes && n%l.Width == 0
	}
	return false
}

// Plausible reports whether a chunk of raw bytes can take stored bytes with this method. Readers check a chunk table with it
// before they use the table. Compressed chunks are always smaller than raw.
func (m Method) Plausible(stored, raw int, l Layout) bool {
	if !l.fits(raw) {
		return false
	}
	least := 1
	switch m {
	case Raw:
		return stored == raw
	case Zstd, Zstd | Delta:
	case Planes, Planes | Delta:
		least = l.Width * (entryBytes + 1)
	default:
		return false
	}
	return m.sumBytes()+least <= stored && stored < raw
}

// sumBytes returns the length of the checksum at the beginning of the stored bytes: with Delta, the CRC-32C of the raw chunk. The chunk
// table has a checksum only of the stored bytes, which does not cover the base: with another base, or one that was damaged in
// memory, they would decode to other data without an error.
func (m Method) sumBytes() int {
	if m&Delta != 0 {
		return 4
	}
	return 0
}

// A chunk of method Planes is one entry per plane, then the planes' bytes in the same order, with nothing between them. An
// entry is the plane's codec and the 24-bit little-endian length of its stored bytes. Plane k holds byte k of every
// element, after the elements of floating-point layouts have been rotated left by one bit.
const entryBytes = 4

// A PlaneCodec is how one plane is stored. The values are those of the format.
type PlaneCodec byte

const (
	PlaneRaw      PlaneCodec = 0
	PlaneConstant PlaneCodec = 1 // all its bytes are the one stored
	PlaneHuff0    PlaneCodec = 2 // a Huffman table and four streams, as huff0.Compress4X writes them
	PlaneZstd     PlaneCodec = 3 // one zstd frame
)

func (c PlaneCodec) String() string {
	if c > PlaneZstd {
		return fmt.Sprintf("plane codec %d", byte(c))
	}
	return [...]string{"raw", "constant", "huff0", "zstd"}[c]
}

// A Plane describes how one plane of a chunk is stored.
type Plane struct {
	Codec  PlaneCodec
	Stored int // bytes
}

// HeadBytes returns how many of the stored bytes describe the planes, or 0 if the method has none.
func (m Method) HeadBytes(l Layout) int {
	if m&^Delta != Planes {
		return 0
	}
	return m.sumBytes() + l.Width*entryBytes
}

// ParseHead parses the first HeadBytes of a plausible chunk of the given number of stored bytes, for callers that need to know
// how it is stored but do not decode it. It returns Layout.Width planes, from the lowest bytes of the elements to the
// highest. It returns an error unless their lengths add up to all stored bytes after the head.
func (m Method) ParseHead(head []byte, stored int, l Layout) ([]Plane, error) {
	head, left := head[m.sumBytes():], stored-m.HeadBytes(l)
	p := make([]Plane, l.Width)
	for k := range p {
		p[k].Codec, p[k].Stored = planeEntry(head[k*entryBytes:])
		if p[k].Codec > PlaneZstd {
			return nil, fmt.Errorf("plane %d has the unknown codec %d", k, byte(p[k].Codec))
		}
		left -= p[k].Stored
	}
	if left != 0 {
		return nil, fmt.Errorf("the planes have %d bytes more than the chunk", -left)
	}
	return p, nil
}

// maxWidth is the largest Layout.Width, and so the largest number of planes.
const maxWidth = 8

// planes holds the byte planes of a chunk, in its first Layout.Width elements.
type planes [maxWidth][]byte

// cut makes planes of n bytes each from the memory of buf.
func (p *planes) cut(buf []byte, width, n int) {
	for k := range width {
		p[k] = buf[k*n : (k+1)*n : (k+1)*n]
	}
}

// putPlaneEntry encodes an entry of the header.
func putPlaneEntry(b []byte, codec PlaneCodec, length int) {
	b[0], b[1], b[2], b[3] = byte(codec), byte(length), byte(length>>8), byte(length>>16)
}

// planeEntry decodes an entry of the header.
func planeEntry(b []byte) (codec PlaneCodec, length int) {
	return PlaneCodec(b[0]), int(b[1]) | int(b[2])<<8 | int(b[3])<<16
}
