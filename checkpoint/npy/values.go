package npy

import (
	"encoding/binary"
	"errors"
	"io"
)

// values is a writer for the bytes of a tensor of a dtype, in any pieces of whole elements, that hands them on to w as a file has them.
func values(w io.Writer, dtype string) io.Writer {
	if dtype == "bfloat16" {
		return &widener{w: w}
	}
	return w
}

// widener turns bfloat16 into float32: the upper half of its bits, with zeros behind.
type widener struct {
	w   io.Writer
	buf [16 << 10]byte
}

var errHalf = errors.New("npy: half a bfloat16 was written")

func (e *widener) Write(p []byte) (int, error) {
	if len(p)%2 != 0 {
		return 0, errHalf
	}
	for done := 0; done < len(p); {
		part := p[done:min(len(p), done+len(e.buf)/2)]
		for i := 0; i < len(part); i += 2 {
			binary.LittleEndian.PutUint32(e.buf[2*i:], uint32(binary.LittleEndian.Uint16(part[i:]))<<16)
		}
		n, err := e.w.Write(e.buf[:2*len(part)])
		done += n / 2
		if err != nil {
			return done, err
		}
	}
	return len(p), nil
}
