package data

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Digest is a hash of all rows of d in their order. It tells copies of a data set that differ from
// those that do not, wherever they come from.
func Digest(d Dataset) [sha256.Size]byte {
	spec := d.Spec()
	h := sha256.New()
	var text []byte
	for _, n := range []int{d.Len(), spec.Inputs, spec.Outputs, spec.Classes} {
		text = binary.LittleEndian.AppendUint64(text, uint64(n))
	}
	h.Write(text)

	values := make([]float32, spec.Inputs+spec.Outputs)
	x, y := values[:spec.Inputs], values[spec.Inputs:]
	for i := range d.Len() {
		text = binary.LittleEndian.AppendUint64(text[:0], uint64(d.Read(i, x, y)))
		for _, v := range values {
			text = binary.LittleEndian.AppendUint32(text, math.Float32bits(v))
		}
		h.Write(text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
