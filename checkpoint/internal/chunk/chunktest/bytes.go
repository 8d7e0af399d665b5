package chunktest

import (
	"encoding/binary"
	"math"
)

// put32 and put16 store numbers as little-endian float32 and bfloat16.
func put32(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func put16(x []float32) []byte {
	b := make([]byte, 0, 2*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint16(b, round16(v))
	}
	return b
}

// round16 rounds a finite number to the nearest bfloat16, ties to even.
func round16(x float32) uint16 {
	u := math.Float32bits(x)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}
