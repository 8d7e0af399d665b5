package transport

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
)

// The bytes are laid out by hand from the table in the package documentation.
func TestHeaderLayout(t *testing.T) {
	h := header{
		kind:   kindData,
		call:   Call{Seq: 0x0102030405060708, Count: 10, Root: -2, Collective: 1, Element: 2, Op: 3},
		length: 40,
	}
	want := "644d0101" + "01020300" + "0807060504030201" + "0a00000000000000" + "feffffff" + "28000000"
	var buf [headerSize]byte
	h.encode(&buf)
	if got := hex.EncodeToString(buf[:]); got != want {
		t.Errorf("encoded\n%s, want\n%s", got, want)
	}
	got, err := decodeHeader(&buf)
	if err != nil || got != h {
		t.Errorf("decoded %+v, %v; want %+v", got, err, h)
	}
}

func TestHeaderRefused(t *testing.T) {
	valid := "644d0101" + "01020300" + "0807060504030201" + "0a00000000000000" + "feffffff" + "28000000"
	tests := []struct {
		name      string
		at        int // of the byte to change
		bytes     string
		complaint string
	}{
		{"magic", 0, "65", "begins with"},
		{"magic_2", 1, "00", "begins with"},
		{"version", 2, "02", "version 2"},
		{"kind_0", 3, "00", "unknown kind 0"},
		{"kind_4", 3, "04", "unknown kind 4"},
		{"reserved", 7, "01", "begins with"},
		{"data_too_long", 28, "01001000", "1048577 bytes"},
		{"length_all_ones", 28, "ffffffff", "4294967295 bytes"},
		{"bye_with_payload", 3, "03", "40 bytes, more than 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var buf [headerSize]byte
			hex.Decode(buf[:], []byte(valid))
			hex.Decode(buf[tt.at:], []byte(tt.bytes))
			_, err := decodeHeader(&buf)
			if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), tt.complaint) {
				t.Errorf("got %v, want a protocol error with %q", err, tt.complaint)
			}
		})
	}
}

func FuzzDecodeHeader(f *testing.F) {
	var buf [headerSize]byte
	for _, h := range []header{
		{kind: kindData, call: Call{Seq: 7, Count: math.MaxUint64, Root: math.MinInt32, Collective: 1, Element: 1, Op: 255}, length: MaxPayload},
		{kind: kindAbort, length: maxAbort},
		{kind: kindBye},
	} {
		h.encode(&buf)
		f.Add(buf[:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < headerSize {
			return
		}
		raw := (*[headerSize]byte)(in)
		h, err := decodeHeader(raw)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if h.length > MaxPayload {
			t.Fatalf("accepted %d bytes", h.length)
		}
		var again [headerSize]byte
		h.encode(&again)
		if again != *raw {
			t.Fatalf("% x decodes to %+v, which encodes to % x", *raw, h, again)
		}
	})
}
