package shm

import (
	"bytes"
	"testing"
)

func TestHandleRoundTrip(t *testing.T) {
	want := Handle{PID: 4194304, FD: 7, Size: 1 << 40, Token: [tokenSize]byte{1, 15: 2}}
	encoded := want.Encode()
	if got, err := DecodeHandle(encoded[:]); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func FuzzDecodeHandle(f *testing.F) {
	for _, h := range []Handle{{}, {PID: 1, Size: 1}, {PID: 1 << 31, Size: 1}, {PID: 1, FD: 1 << 31, Size: 1}, {PID: 1, FD: 3, Size: -1}} {
		b := h.Encode()
		f.Add(b[:])
	}
	f.Add(make([]byte, HandleSize+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHandle(b)
		if err != nil {
			return
		}
		if h.PID <= 0 || h.FD < 0 || h.Size <= 0 || h.Size > maxSegment {
			t.Errorf("accepted %+v", h)
		}
		if again := h.Encode(); !bytes.Equal(again[:], b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
