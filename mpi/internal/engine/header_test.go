package engine

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
)

// By hand, from the table in the package documentation.
const laidOut = "644d0201" + "01020304" + "0807060504030201" + "1817161514131211" + "0a00000000000000" + "feffffff" + "00000000" + "2800000000000000"

func TestHeaderLayout(t *testing.T) {
	h := header{
		kind: kindCollective,
		call: Call{
			Collective: 1, Element: 2, Op: 3, Algorithm: 4,
			Group: 0x0102030405060708, Seq: 0x1112131415161718, Count: 10, Root: -2,
		},
		length: 40,
	}
	var buf [headerSize]byte
	h.encode(&buf)
	if got := hex.EncodeToString(buf[:]); got != laidOut {
		t.Errorf("encoded\n%s, want\n%s", got, laidOut)
	}
	got, err := decodeHeader(&buf)
	if err != nil || got != h {
		t.Errorf("decoded %+v, %v; want %+v", got, err, h)
	}
}

func TestHeaderRefused(t *testing.T) {
	tests := []struct {
		name      string
		at        int // of the bytes to change
		bytes     string
		complaint string
	}{
		{"magic", 0, "65", "begins with"},
		{"magic_2", 1, "00", "begins with"},
		{"version", 2, "01", "frame version 1, not 2"},
		{"kind_0", 3, "00", "unknown kind 0"},
		{"kind_8", 3, "08", "unknown kind 8"},
		{"reserved", 36, "01", "begins with"},
		{"reserved_last", 39, "80", "begins with"},
		{"data_too_long", 40, "0100000000010000", "1099511627777 bytes"},
		{"length_all_ones", 40, "ffffffffffffffff", "18446744073709551615 bytes"},
		{"abort_too_long", 3, "03" + strings.Repeat("00", 36) + "0108", "a frame of kind 3 announces 2049 bytes, more than 2048"},
		{"leave_with_payload", 3, "04", "40 bytes, more than 0"},
		{"bye_with_payload", 3, "05", "40 bytes, more than 0"},
		{"query_with_payload", 3, "06", "40 bytes, more than 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var buf [headerSize]byte
			hex.Decode(buf[:], []byte(laidOut))
			hex.Decode(buf[tt.at:], []byte(tt.bytes))
			_, err := decodeHeader(&buf)
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
			wantText(t, err, tt.complaint)
		})
	}
}

func FuzzDecodeHeader(f *testing.F) {
	var buf [headerSize]byte
	for _, h := range []header{
		{kind: kindCollective, call: Call{Group: 1, Seq: 7, Count: math.MaxUint64, Root: math.MinInt32, Collective: 1, Element: 1, Op: 255}, length: maxPayload},
		{kind: kindAbort, length: maxControl},
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
		if h.length > maxPayload || !h.kind.carriesData() && h.length > maxControl {
			t.Fatalf("accepted %d bytes", h.length)
		}
		var again [headerSize]byte
		h.encode(&again)
		if again != *raw {
			t.Fatalf("% x decodes to %+v, which encodes to % x", *raw, h, again)
		}
	})
}
