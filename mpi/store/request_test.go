package store

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// requests has one request of each kind with its frame, written by hand from the description in request.go: length, id, op, fields.
var requests = []struct {
	name  string
	req   request
	frame string
}{
	{"set", request{id: 1, op: opSet, key: "k", value: []byte("v1")},
		"00000014 0000000000000001 01 00000001 6b 00000002 7631"},
	{"get", request{id: 2, op: opGet, key: "k"},
		"0000000e 0000000000000002 02 00000001 6b"},
	{"add", request{id: 258, op: opAdd, key: "k", delta: -2},
		"00000016 0000000000000102 03 00000001 6b fffffffffffffffe"},
	{"compareset", request{id: 4, op: opCompareSet, key: "k", expected: []byte("old"), value: []byte("n")},
		"0000001a 0000000000000004 04 00000001 6b 00000003 6f6c64 00000001 6e"},
	{"wait", request{id: 5, op: opWait, keys: []string{"a", "", "bc"}},
		"0000001c 0000000000000005 05 00000003 00000001 61 00000000 00000002 6263"},
	{"delete", request{id: 6, op: opDelete, key: "k"},
		"0000000e 0000000000000006 06 00000001 6b"},
	{"append", request{id: 8, op: opAppend, key: "k", value: []byte("v1")},
		"00000014 0000000000000008 08 00000001 6b 00000002 7631"},
	{"check", request{id: 9, op: opCheck, keys: []string{"a", "bc"}},
		"00000018 0000000000000009 09 00000002 00000001 61 00000002 6263"},
	{"numkeys", request{id: 10, op: opNumKeys, key: "p/"},
		"0000000f 000000000000000a 0a 00000002 702f"},
	{"list", request{id: 11, op: opList, key: ""},
		"0000000d 000000000000000b 0b 00000000"},
	{"multiget", request{id: 12, op: opMultiGet, keys: []string{"a"}},
		"00000012 000000000000000c 0c 00000001 00000001 61"},
	{"multiset", request{id: 13, op: opMultiSet, items: []Item{{"a", []byte("v")}, {"", []byte{}}}},
		"0000001f 000000000000000d 0d 00000002 00000001 61 00000001 76 00000000 00000000"},
	{"cancel", request{id: 7, op: opCancel},
		"00000009 0000000000000007 07"},
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRequestsCrossTheWire(t *testing.T) {
	for _, c := range requests {
		t.Run(c.name, func(t *testing.T) {
			want := unhex(t, c.frame)
			if got := c.req.frame(); !bytes.Equal(got, want) {
				t.Errorf("frame %x, want %x", got, want)
			}
			body, err := readFrame(bufio.NewReader(bytes.NewReader(want)), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseRequest(body)
			if err != nil || !reflect.DeepEqual(got, c.req) {
				t.Errorf("parsed %+v, %v; want %+v", got, err, c.req)
			}
			for n := range len(body) {
				if _, err := parseRequest(body[:n]); !errors.Is(err, errMalformed) {
					t.Errorf("cut to %d bytes: %v", n, err)
				}
			}
			if _, err := parseRequest(append(body, 0)); !errors.Is(err, errMalformed) {
				t.Errorf("with a byte more: %v", err)
			}
		})
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	for name, body := range map[string]string{
		"no such op":           "0000000000000001 00",
		"nor this one":         "0000000000000001 0e",
		"huge key":             "0000000000000001 02 ffffffff 6b",
		"huge value":           "0000000000000001 01 00000001 6b 7fffffff",
		"huge list":            "0000000000000001 05 ffffffff",
		"list without keys":    "0000000000000001 05 00010000 00000001 61",
		"list is one too long": "0000000000000001 05 00020001" + strings.Repeat("00000000", 0x20001),
		"list without values":  "0000000000000001 0d 00000002 00000001 61 00000001 76 00000000",
		"no room for values":   "0000000000000001 0d 00010000 00000001 61 00000001 76",
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := parseRequest(unhex(t, body)); !errors.Is(err, errMalformed) {
				t.Errorf("parsed %+v, %v", r, err)
			}
		})
	}
}

func TestBrokenFramesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"end":           {"", io.EOF},
		"half a length": {"0000", io.ErrUnexpectedEOF},
		"only a length": {"00000009", io.ErrUnexpectedEOF},
		"half a frame":  {"0000000900000000", io.ErrUnexpectedEOF},
		"too short":     {"00000008 0000000000000001", errMalformed},
		"too long":      {"ffffffff", errMalformed},
		"http":          {hex.EncodeToString([]byte("GET / HTTP/1.1\r\n")), errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readFrame(bufio.NewReader(bytes.NewReader(unhex(t, c.stream))), nil); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

// FuzzParseRequest compares every request that parses with the frame as which it would be sent.
func FuzzParseRequest(f *testing.F) {
	for _, c := range requests {
		f.Add(unhex(f, c.frame)[frameHead:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := parseRequest(body)
		if err != nil {
			return
		}
		if again := req.frame()[frameHead:]; !bytes.Equal(again, body) {
			t.Errorf("%x became %x", body, again)
		}
		if len(body) > minFrame+req.size() {
			t.Errorf("size says %d for %d bytes", req.size(), len(body))
		}
	})
}
