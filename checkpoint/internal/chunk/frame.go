package chunk

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

var errNotOneFrame = errors.New("the bytes are not one frame, whole and without a dictionary")

// checkFrame refuses bytes that are not exactly one zstd frame without a dictionary (RFC 8878, 3.1.1). A decoder takes
// several, one after the other, and passes over what it calls skippable: two files could then mean the same, and hold
// what no one looks at.
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
		// One bit says that it is the last block, two are its type, the rest is its size.
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
	repeated         = 1 // a block type: one byte, and how often it stands
)
