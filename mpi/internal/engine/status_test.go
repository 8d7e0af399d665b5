package engine

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestStatusRoundTrip(t *testing.T) {
	for name, want := range map[string]status{
		"unknown": {waits: Any, label: "host"},
		"gone":    {gone: true, waits: Any, label: "host"},
		"running": {known: true, running: true, call: Call{Group: 5, Seq: 9, Count: 3, Root: -1, Collective: 4, Element: 5, Op: 6, Algorithm: 7}, ago: 1500 * time.Millisecond},
		"ended":   {known: true, call: Call{Seq: 1}, ago: time.Hour, waits: 3, label: "host1, pid 17"},
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
	payload := (&status{label: strings.Repeat("x", 5000)}).encode()
	if len(payload) != maxControl {
		t.Errorf("payload of %d bytes, want %d", len(payload), maxControl)
	}
	if _, err := decodeStatus(payload, 4); err != nil {
		t.Error(err)
	}
}

func TestStatusRefused(t *testing.T) {
	valid := (&status{known: true, call: Call{Seq: 1}, waits: Any}).encode()
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
	f.Add((&status{known: true, running: true, call: Call{Seq: 3}, ago: time.Second, label: "host1, pid 3"}).encode())
	f.Add(append((&status{}).encode(), "\x1b[31m\xff\n"...))
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
		wantPrintable(t, s.label)
		g := &Group{e: &Engine{options: Options{Describe: describeCall}}, call: Call{Seq: 5}}
		wantPrintable(t, g.describe(s))
	})
}
