package data

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"ddpbatch/internal/crc32c"
)

// A file of prepared data is, little-endian:
//
//	0   8 bytes  magic "ddpdata\n"
//	8   uint32   version, 1
//	12  uint32   length of the header
//	16  uint32   CRC-32C of the header
//	20  uint32   CRC-32C of all that follows the header
//	24  header   JSON: where it is from, the arrays' kinds and dimensions
//	             zeros up to a multiple of 64, and an array; as often as there are arrays
const (
	preparedMagic   = "ddpdata\n"
	preparedVersion = 1
	preparedFixed   = 24
	preparedAlign   = 64 // of a cache line

	maxPreparedHeader = 64 << 10
	maxPreparedArrays = 8
)

// preparedHeader is the JSON in the file.
type preparedHeader struct {
	Source  source          `json:"source"`
	Classes int             `json:"classes"`
	Arrays  []preparedArray `json:"arrays"`
}

type preparedArray struct {
	Kind string `json:"kind"`
	Dims []int  `json:"dims"`
}

func encodePrepared(w io.Writer, src source, p *prepared) error {
	h := preparedHeader{Source: src, Classes: p.Classes}
	for _, a := range p.Arrays {
		h.Arrays = append(h.Arrays, preparedArray{string(a.kind), a.dims})
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxPreparedHeader {
		return fmt.Errorf("a header of %d bytes, at most %d are accepted: is a path that long?", len(text), maxPreparedHeader)
	}
	var pieces [][]byte
	at := preparedFixed + len(text)
	sum := uint32(0)
	for _, a := range p.Arrays {
		gap := make([]byte, -at&(preparedAlign-1))
		pieces = append(pieces, gap, a.bytes)
		at += len(gap) + len(a.bytes)
		sum = crc32c.Update(crc32c.Update(sum, gap), a.bytes)
	}
	head := []byte(preparedMagic)
	head = binary.LittleEndian.AppendUint32(head, preparedVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, crc32c.Checksum(text))
	head = binary.LittleEndian.AppendUint32(head, sum)
	for _, piece := range append([][]byte{append(head, text...)}, pieces...) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// decodePrepared reads a file; the arrays are views of it. Every error is errStale.
func decodePrepared(b []byte) (*prepared, source, error) {
	stale := func(what string) (*prepared, source, error) {
		return nil, source{}, fmt.Errorf("%w: %s", errStale, what)
	}
	if len(b) < preparedFixed || string(b[:8]) != preparedMagic {
		return stale("it does not begin as such files do")
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	if word(8) != preparedVersion {
		return stale(fmt.Sprintf("version %d", word(8)))
	}
	size := int64(word(12))
	if size > maxPreparedHeader || size > int64(len(b)-preparedFixed) {
		return stale("the header is cut short")
	}
	text, rest := b[preparedFixed:preparedFixed+int(size)], b[preparedFixed+int(size):]
	if crc32c.Checksum(text) != word(16) || crc32c.Checksum(rest) != word(20) {
		return stale("a sum is wrong")
	}
	var h preparedHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return stale(err.Error())
	}
	p := &prepared{Classes: h.Classes}
	at := preparedFixed + int(size)
	if len(h.Arrays) > maxPreparedArrays {
		return stale("too many arrays")
	}
	for _, a := range h.Arrays {
		if a.Kind != string(kindBytes) && a.Kind != string(kindFloats) && a.Kind != string(kindInts) {
			return stale("an array is of no known kind")
		}
		at += -at & (preparedAlign - 1)
		n := length(a.Kind[0], a.Dims)
		if n < 0 || at > len(b) || n > len(b)-at {
			return stale("an array goes beyond the end")
		}
		p.Arrays = append(p.Arrays, array{a.Kind[0], a.Dims, b[at : at+n]})
		at += n
	}
	if at != len(b) {
		return stale("it goes on after the last array")
	}
	return p, h.Source, nil
}
