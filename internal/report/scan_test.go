package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

// numbersOf returns the numbers that scan finds in a line.
func numbersOf(line []byte) (map[string]float64, bool) {
	found := map[string]float64{}
	f := fields{number: func(name []byte, value float64) { found[string(name)] = value }}
	return found, f.scan(line)
}

// wantNumbers returns the numbers that encoding/json finds, and whether it accepts the line as an object.
func wantNumbers(line []byte) (map[string]float64, bool) {
	if !json.Valid(line) || !bytes.HasPrefix(bytes.TrimLeft(line, " \t\r\n"), []byte("{")) {
		return nil, false
	}
	found := map[string]float64{}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	for depth, isName, name := 0, false, ""; ; {
		token, err := d.Token()
		if err == io.EOF {
			return found, true
		}
		switch token := token.(type) {
		case json.Delim:
			if depth++; token == '}' || token == ']' {
				depth -= 2
			}
			isName = depth == 1
			continue
		case string:
			if depth == 1 && isName {
				name, isName = token, false
				continue
			}
		case json.Number:
			if depth == 1 {
				found[name], _ = token.Float64()
			}
		}
		isName = depth == 1
	}
}

func TestScanFindsNumbers(t *testing.T) {
	for line, want := range map[string]string{
		`{"step":10,"loss":0.5,"time":"2026-11-27T10:17:29Z","x":null,"ok":true,"no":false}`: "map[loss:0.5 step:10]",
		` { "a" : -1e3 , "b" : 0 , "c":1.5E+2 } ` + "\r\n":                                   "map[a:-1000 b:0 c:150]",
		`{"a":{"b":1,"c":[1,"]}"]},"d":2}`:                                                   "map[d:2]",
		`{"a":NaN,"b":Infinity,"c":-Infinity,"d":1}`:                                         "map[a:NaN b:+Inf c:-Inf d:1]",
		`{"a":1e999,"b":-1e999}`:                                                             "map[a:+Inf b:-Inf]",
		`{"a\"b":1,"\u0061":2,"ü":3}`:                                                        "map[a:2 a\"b:1 ü:3]",
		`{"a":1,"a":2}`:                                                                      "map[a:2]",
		`{}`:                                                                                 "map[]",
	} {
		if got, ok := numbersOf([]byte(line)); !ok || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v; want %s", line, got, ok, want)
		}
	}
	for _, line := range []string{
		``, `{`, `[1]`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":01}`, `{"a":.5}`, `{"a":1.}`, `{"a":1e}`, `{"a":+1}`,
		`{"a":0x10}`, `{"a":1_0}`,
		`{"a":1}x`, `{"a":nul}`, `{"a":"x}`, `{"a":"\x"}`, "{\"a\":\"\x01\"}", `{a:1}`, `{"a":[1}`, `{"a":[1,]}`,
		`{"a":[NaN]}`, `{"a":--1}`,
		"\x00\x00\x00", `{"a" 1}`,
	} {
		if got, ok := numbersOf([]byte(line)); ok {
			t.Errorf("%q is taken for an object: %v", line, got)
		}
	}
}

// FuzzScan compares scan with encoding/json. On lines that encoding/json accepts, both find the same numbers. Of the other lines, scan
// accepts only those with numbers that JSON does not have.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"step":10,"loss":0.5e-3,"time":"2026","x":null,"n":{"a":[1,"}"]}}`))
	f.Add([]byte(`{"a\u0062":1,"a":true,"b":[],"c":""}`))
	f.Add([]byte(`{"a":NaN,"b":-Infinity,"c":1e999}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, ok := numbersOf(line)
		want, valid := wantNumbers(line)
		if valid && (!ok || fmt.Sprint(got) != fmt.Sprint(want)) {
			t.Fatalf("%q: %v, %v; encoding/json: %v", line, got, ok, want)
		}
		if ok && !valid && !strings.Contains(string(line), "NaN") && !strings.Contains(string(line), "Infinity") {
			t.Fatalf("%q is taken, and not by encoding/json", line)
		}
		for name, value := range got {
			if math.IsNaN(value) != math.IsNaN(want[name]) && valid {
				t.Fatalf("%q: %s", line, name)
			}
		}
	})
}
