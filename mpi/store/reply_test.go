package store

import (
	"bufio"
	"bytes"
	"errors"
	"testing"
)

// TestErrorsCrossTheWire sends each error of a store, and checks the error that the client returns.
func TestErrorsCrossTheWire(t *testing.T) {
	for _, s := range replyCodes {
		sent := errorReply(9, &remoteError{"set k: " + s.err.Error(), s.err})
		var wire bytes.Buffer
		w := bufio.NewWriter(&wire)
		if err := errors.Join(sent.writeTo(w), w.Flush()); err != nil {
			t.Fatal(err)
		}
		frame, err := readFrame(bufio.NewReader(&wire), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseReply(frame)
		if err != nil || got.id != 9 {
			t.Fatalf("parsed %+v, %v", got, err)
		}
		if _, err := got.outcome(t.Context(), &request{op: opSet}); !errors.Is(err, s.err) || err.Error() != "set k: "+s.err.Error() {
			t.Errorf("the client got %v, want %v", err, s.err)
		}
	}
}

func TestMalformedRepliesAreRefused(t *testing.T) {
	for name, frame := range map[string]string{"status 0": "0000000000000001 00", "status 9": "0000000000000001 09"} {
		if _, err := parseReply(unhex(t, frame)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, parse := range map[string]func() error{
		"short number":      func() error { _, err := result("1234567").number(); return err },
		"long number":       func() error { _, err := result("123456789").number(); return err },
		"no truth":          func() error { _, err := result("").bool(); return err },
		"truth 2":           func() error { _, err := result("\x02").bool(); return err },
		"two truths":        func() error { _, err := result("\x01\x01").bool(); return err },
		"no option":         func() error { _, err := result("").optional(); return err },
		"no list":           func() error { _, err := result("").list(); return err },
		"short list":        func() error { _, err := result("\x00\x00\x00\x01").list(); return err },
		"huge list":         func() error { _, err := result("\xff\xff\xff\xff").list(); return err },
		"list with more":    func() error { _, err := result("\x00\x00\x00\x00v").list(); return err },
		"option 2":          func() error { _, err := result("\x02").optional(); return err },
		"none, and a value": func() error { _, err := result("\x00v").optional(); return err },
	} {
		if err := parse(); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReply sends arbitrary frames to a client.
func FuzzReply(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x01\x01value"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x02\x00\x00\x00\x01a\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x03text"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		rep, err := parseReply(frame)
		if err != nil {
			return
		}
		for _, req := range []request{{op: opGet, key: "k"}, {op: opWait, keys: []string{"a", "b"}}, {op: opAdd}} {
			res, err := rep.outcome(t.Context(), &req)
			if (err == nil) != (rep.code == replyDone) {
				t.Errorf("status %d gave error %v", rep.code, err)
			}
			if err != nil {
				_ = err.Error()
				continue
			}
			res.number()
			res.bool()
			res.optional()
			res.list()
		}
	})
}
