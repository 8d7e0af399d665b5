package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/text"
)

// laidOut was written by hand from the table in the package documentation.
const laidOut = "644d0201" + "01020304" + "0807060504030201" + "1817161514131211" + "0a00000000000000" + "feffffff" +
	"00000000" + "2800000000000000"

func TestHeaderHasItsBytesInOrder(t *testing.T) {
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

func TestFaultyHeaderIsRefused(t *testing.T) {
	tests := []struct {
		name      string
		at        int // the offset of the bytes to change
		bytes     string
		complaint string
	}{
		{"magic", 0, "65", "begins with"},
		{"magic_2", 1, "00", "begins with"},
		{"version", 2, "01", "frame version 1, want 2"},
		{"kind_0", 3, "00", "unknown kind 0"},
		{"kind_8", 3, "08", "unknown kind 8"},
		{"reserved", 36, "01", "begins with"},
		{"reserved_last", 39, "80", "begins with"},
		{"data_too_long", 40, "0100000000010000", "1099511627777 bytes"},
		{"length_all_ones", 40, "ffffffffffffffff", "18446744073709551615 bytes"},
		{"abort_too_long", 3, "03" + strings.Repeat("00", 36) + "0108", "a frame of kind 3 with 2049 bytes, more than 2048"},
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
		{kind: kindCollective, call: Call{Group: 1, Seq: 7, Count: math.MaxUint64, Root: math.MinInt32, Collective: 1, Element: 1, Op: 255},
			length: maxPayload},
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

func TestAbortRoundTrip(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want AbortError
	}{
		{"timeout", &PeerError{Rank: 3, Err: fmt.Errorf("%w for 3s", ErrTimeout)},
			AbortError{By: 1, Rank: 3, Reason: ErrTimeout, Text: "said"}},
		{"lost", fmt.Errorf("x: %w", &PeerError{Rank: 2, Err: ErrLost}), AbortError{By: 1, Rank: 2, Reason: ErrLost, Text: "said"}},
		{"left", &PeerError{Rank: 0, Err: ErrLeft}, AbortError{By: 1, Rank: 0, Reason: ErrLeft, Text: "said"}},
		{"protocol", &PeerError{Rank: 0, Err: ErrProtocol}, AbortError{By: 1, Rank: 0, Reason: ErrProtocol, Text: "said"}},
		{"truncated", &PeerError{Rank: 0, Err: ErrTruncated}, AbortError{By: 1, Rank: 0, Reason: ErrTruncated, Text: "said"}},
		{"mismatch", &MismatchError{Here: 1, There: 2}, AbortError{By: 1, Rank: 2, Reason: ErrMismatch, Text: "said"}},
		{"cancelled_while_waiting", &PeerError{Rank: 2, Err: context.Canceled},
			AbortError{By: 1, Rank: 1, Reason: ErrAborted, Text: "said"}},
		{"relayed", fmt.Errorf("x: %w", &AbortError{By: 0, Rank: 3, Reason: ErrLost, Text: "first"}),
			AbortError{By: 0, Rank: 3, Reason: ErrLost, Text: "first"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeAbort(newAbort(1, tt.err, "said").encode(), 4)
			if err != nil || *got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if !errors.Is(got, tt.want.Reason) {
				t.Errorf("%v does not match %v", got, tt.want.Reason)
			}
		})
	}
}

func TestAbortTextIsCut(t *testing.T) {
	payload := (&AbortError{By: 1, Rank: 2, Reason: ErrLost, Text: strings.Repeat("x", 5000)}).encode()
	if len(payload) != maxControl {
		t.Errorf("payload of %d bytes, want %d", len(payload), maxControl)
	}
}

func TestFaultyAbortIsRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"empty":        "",
		"short":        "\x01\x00\x00\x00\x02\x00\x00\x00",
		"by_nobody":    "\x04\x00\x00\x00\x02\x00\x00\x00\x00",
		"about_nobody": "\x01\x00\x00\x00\xff\xff\xff\xff\x00",
		"no_reason":    "\x01\x00\x00\x00\x02\x00\x00\x00\x07",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := decodeAbort([]byte(payload), 4); !errors.Is(err, ErrProtocol) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func FuzzDecodeAbort(f *testing.F) {
	f.Add((&AbortError{By: 1, Rank: 2, Reason: ErrTimeout, Text: "no progress"}).encode())
	f.Add([]byte("\x01\x00\x00\x00\x02\x00\x00\x00\x01\x1b[31m\xff\n"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		a, err := decodeAbort(payload, 4)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if a.By < 0 || a.By >= 4 || a.Rank < 0 || a.Rank >= 4 {
			t.Fatalf("ranks out of range: %+v", a)
		}
		wantClean(t, a.Error())
		if again, err := decodeAbort(a.encode(), 4); len(payload) < maxControl/4 && (err != nil || *again != *a) {
			t.Fatalf("%+v becomes %+v, %v", a, again, err)
		}
	})
}

// wantClean checks that words cannot steer a terminal.
func wantClean(t testing.TB, words string) {
	t.Helper()
	if i := strings.IndexFunc(words, text.Unsafe); i >= 0 {
		t.Fatalf("unsafe at %d: %q", i, words)
	}
}

func TestStatusRoundTrip(t *testing.T) {
	for name, want := range map[string]groupStatus{
		"unknown": {waits: Any, label: "host"},
		"gone":    {gone: true, waits: Any, label: "host"},
		"running": {known: true, running: true, call: Call{Group: 5, Seq: 9, Count: 3, Root: -1, Collective: 4, Element: 5, Op: 6,
			Algorithm: 7}, ago: 1500 * time.Millisecond},
		"ended": {known: true, call: Call{Seq: 1}, ago: time.Hour, waits: 3, label: "host1, pid 17"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeStatus(want.encode(), 4)
			if err != nil || *got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestStatusLabelIsCut(t *testing.T) {
	payload := (&groupStatus{label: strings.Repeat("x", 5000)}).encode()
	if len(payload) != maxControl {
		t.Errorf("payload of %d bytes, want %d", len(payload), maxControl)
	}
	if _, err := decodeStatus(payload, 4); err != nil {
		t.Error(err)
	}
}

func TestFaultyStatusIsRefused(t *testing.T) {
	valid := (&groupStatus{known: true, call: Call{Seq: 1}, waits: Any}).encode()
	for name, change := range map[string]func([]byte) []byte{
		"empty":       func([]byte) []byte { return nil },
		"short":       func(b []byte) []byte { return b[:len(b)-1] },
		"other_kind":  func(b []byte) []byte { b[3] = byte(kindQuery); return b },
		"no_header":   func(b []byte) []byte { b[0] = 0; return b },
		"other_flags": func(b []byte) []byte { b[headerSize] = 8; return b },
		"no_rank":     func(b []byte) []byte { b[headerSize+9] = 4; return b },
		"below_any":   func(b []byte) []byte { b[headerSize+9] = 0xfe; return b },
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := decodeStatus(change(append([]byte(nil), valid...)), 4); !errors.Is(err, ErrProtocol) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func FuzzDecodeStatus(f *testing.F) {
	f.Add((&groupStatus{known: true, running: true, call: Call{Seq: 3}, ago: time.Second, label: "host1, pid 3"}).encode())
	f.Add(append((&groupStatus{}).encode(), "\x1b[31m\xff\n"...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := decodeStatus(payload, 4)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if s.ago < 0 {
			t.Fatalf("%v ago", s.ago)
		}
		wantClean(t, s.label)
		g := &Group{e: &Engine{options: Options{Describe: describeCall, DescribeFully: detail}}, call: Call{Seq: 5}}
		wantClean(t, g.describe(s))
	})
}
