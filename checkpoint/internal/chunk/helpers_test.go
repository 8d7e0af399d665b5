package chunk_test

import (
	"bytes"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

func newEncoder(t testing.TB, c chunk.Codec) *chunk.Encoder {
	t.Helper()
	e, err := chunk.NewEncoder(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newDecoder(t testing.TB) *chunk.Decoder {
	t.Helper()
	d, err := chunk.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// eachChunk splits data and base into chunks, and calls f for each. base is nil or as long as data.
func eachChunk(data, base []byte, f func(raw, base []byte)) {
	for len(data) > 0 {
		n := min(len(data), chunk.MaxBytes)
		var b []byte
		if base != nil {
			b, base = base[:n], base[n:]
		}
		f(data[:n], b)
		data = data[n:]
	}
}

type encoded struct {
	stored []byte
	method chunk.Method
}

// encodeAll encodes data chunk by chunk, and returns the chunks and how many bytes they take.
func encodeAll(e *chunk.Encoder, data, base []byte, l chunk.Layout) (chunks []encoded, stored int) {
	eachChunk(data, base, func(raw, base []byte) {
		s, m := e.Encode(raw, base, l)
		chunks = append(chunks, encoded{bytes.Clone(s), m})
		stored += len(s)
	})
	return chunks, stored
}
