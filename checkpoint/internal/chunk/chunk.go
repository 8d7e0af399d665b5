package chunk

import "fmt"

// MaxBytes is the length of the longest chunk. All chunks of a piece but its last have this length.
const MaxBytes = 256 << 10

// Layout says what the bytes of a chunk are: little-endian elements of Width bytes.
type Layout struct {
	Width int  // 1, 2, 4 or 8
	Float bool // floating point: sign, exponent and mantissa from the top bit down
}

// A Method says how a chunk is stored. The values are those of the chunk table (docs/format.md).
type Method byte

const (
	Raw    Method = 0    // the bytes themselves
	Zstd   Method = 1    // one zstd frame
	Planes Method = 2    // byte planes, each with a codec of its own
	Delta  Method = 0x80 // a flag: what Zstd or Planes decode to is XORed with the base's chunk; see sumBytes
)

// A Codec says what an Encoder may do.
type Codec byte

const (
	Auto     Codec = iota // planes where they pay, chosen by sampling the data
	ZstdOnly              // one zstd frame where that pays
	None                  // everything raw
)

// ParseCodec is the codec of a name that people write: auto (or nothing), zstd or none.
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

// Plausible reports whether a chunk of raw bytes can take stored bytes with this method: what a reader asks of a
// chunk table before it believes it. Compressed chunks are always smaller than raw.
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

// sumBytes is the length of what the stored bytes begin with: with Delta, the CRC-32C of the raw chunk. The chunk table
// has the checksum of the stored bytes, which says nothing of the base: against another one, or one that was damaged in
// memory, they would decode to other data with no error.
func (m Method) sumBytes() int {
	if m&Delta != 0 {
		return 4
	}
	return 0
}
