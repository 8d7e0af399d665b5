package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

func TestAbortRoundTrip(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want AbortError
	}{
		{"timeout", &PeerError{Rank: 3, Err: fmt.Errorf("%w for 3s", ErrTimeout)}, AbortError{By: 1, Rank: 3, Reason: ErrTimeout, Text: "said"}},
		{"lost", fmt.Errorf("x: %w", &PeerError{Rank: 2, Err: ErrLost}), AbortError{By: 1, Rank: 2, Reason: ErrLost, Text: "said"}},
		{"left", &PeerError{Rank: 0, Err: ErrLeft}, AbortError{By: 1, Rank: 0, Reason: ErrLeft, Text: "said"}},
		{"protocol", &PeerError{Rank: 0, Err: ErrProtocol}, AbortError{By: 1, Rank: 0, Reason: ErrProtocol, Text: "said"}},
		{"truncated", &PeerError{Rank: 0, Err: ErrTruncated}, AbortError{By: 1, Rank: 0, Reason: ErrTruncated, Text: "said"}},
		{"mismatch", &MismatchError{Here: 1, There: 2}, AbortError{By: 1, Rank: 2, Reason: ErrMismatch, Text: "said"}},
		{"cancelled_while_waiting", &PeerError{Rank: 2, Err: context.Canceled}, AbortError{By: 1, Rank: 1, Reason: ErrAborted, Text: "said"}},
		{"relayed", fmt.Errorf("x: %w", &AbortError{By: 0, Rank: 3, Reason: ErrLost, Text: "first"}), AbortError{By: 0, Rank: 3, Reason: ErrLost, Text: "first"}},
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

func TestAbortRefused(t *testing.T) {
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
		wantPrintable(t, a.Error())
		if again, err := decodeAbort(a.encode(), 4); len(payload) < maxControl/4 && (err != nil || *again != *a) {
			t.Fatalf("%+v becomes %+v, %v", a, again, err)
		}
	})
}

// wantPrintable checks that a text cannot steer a terminal.
func wantPrintable(t testing.TB, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Fatalf("unprintable at %d: %q", i, text)
	}
}
