package main

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func floats32(v ...float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func halves(v ...uint16) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint16(out, x)
	}
	return out
}

func doubles(v ...float64) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
	}
	return out
}

func TestDifferingElements(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	none := -1.0
	for name, c := range map[string]struct {
		dtype             string
		x, y              []byte
		t                 tolerance
		differ, nonFinite int64
		abs, rel          float64 // none: no such number
	}{
		"equal":                  {"float32", floats32(1, nan), floats32(1, nan), tolerance{}, 0, 0, none, none},
		"a sign of zero":         {"float32", floats32(0), floats32(float32(math.Copysign(0, -1))), tolerance{}, 1, 0, 0, none},
		"which may not count":    {"float32", floats32(0), floats32(float32(math.Copysign(0, -1))), tolerance{abs: 1e-9}, 0, 0, none, none},
		"one of three":           {"float32", floats32(1, 2, 3), floats32(1, 4, 3), tolerance{}, 1, 0, 2, 0.5},
		"within absolute":        {"float32", floats32(1, 2), floats32(1.25, 3), tolerance{abs: 0.25}, 1, 0, 1, 1.0 / 3},
		"within relative":        {"float32", floats32(90, 80), floats32(100, 100), tolerance{rel: 0.1}, 1, 0, 20, 0.2},
		"NaN and a number":       {"float32", floats32(nan), floats32(1), tolerance{abs: 1e9, rel: 1e9}, 1, 1, none, none},
		"two NaNs, bit by bit":   {"float32", []byte{0, 0, 0xc0, 0x7f}, []byte{1, 0, 0xc0, 0x7f}, tolerance{}, 1, 1, none, none},
		"two NaNs, as numbers":   {"float32", []byte{0, 0, 0xc0, 0x7f}, []byte{1, 0, 0xc0, 0x7f}, tolerance{abs: 1}, 0, 0, none, none},
		"infinity and a number":  {"float32", floats32(inf), floats32(1), tolerance{abs: 1e9, rel: 1e9}, 1, 1, none, none},
		"a number and infinity":  {"float32", floats32(1), floats32(inf), tolerance{abs: 1e9, rel: 1e9}, 1, 1, none, none},
		"two infinities":         {"float32", floats32(inf), floats32(-inf), tolerance{rel: 10}, 1, 1, none, none},
		"float16":                {"float16", halves(0x3c00), halves(0x4000), tolerance{}, 1, 0, 1, 0.5},
		"bfloat16":               {"bfloat16", halves(0x3f80), halves(0x4000), tolerance{}, 1, 0, 1, 0.5},
		"float64":                {"float64", doubles(1), doubles(1 + 0x1p-52), tolerance{}, 1, 0, 0x1p-52, 0x1p-52 / (1 + 0x1p-52)},
		"farther than a float64": {"float64", doubles(math.MaxFloat64), doubles(-math.MaxFloat64), tolerance{}, 1, 0, math.MaxFloat64, math.MaxFloat64},
		"int16":                  {"int16", []byte{1, 0, 2, 0}, []byte{1, 0, 2, 9}, tolerance{abs: 1e9}, 1, 0, none, none},
		"complex64":              {"complex64", make([]byte, 16), append(make([]byte, 15), 1), tolerance{}, 1, 0, none, none},
		"unknown":                {"F8_E8M0", []byte{1, 2, 3}, []byte{1, 3, 4}, tolerance{}, 2, 0, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			d := tensorDiffer{DTypeA: c.dtype}
			d.count(c.x, c.y, c.t)
			if d.Differ != c.differ || d.NonFinite != c.nonFinite || !isNumber(d.MaxAbs, c.abs) || !isNumber(d.MaxRel, c.rel) {
				t.Errorf("%d differ, %d not finite, by %s and %s", d.Differ, d.NonFinite, number(d.MaxAbs), number(d.MaxRel))
			}
		})
	}
}

func isNumber(got *float64, want float64) bool {
	return got == nil && want < 0 || got != nil && *got == want
}

// Each tensor of an export has a file of its own, with a name that leads nowhere else.
func TestArrayFile(t *testing.T) {
	for name, want := range map[string]string{
		"0.weight": "0.weight.npy", "../x": "%2E.%2Fx.npy", "": ".npy", "a%b": "a%25b.npy", "\x00\u00e9": "%00%C3%A9.npy",
	} {
		if got, err := arrayFile(name); err != nil || got != want {
			t.Errorf("%q becomes %q, error %v; want %q", name, got, err, want)
		}
	}
	if _, err := arrayFile(strings.Repeat("a", 252)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("error %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		x, errX := arrayFile(a)
		y, errY := arrayFile(b)
		if errX == nil && errY == nil && (x == y) != (a == b) {
			t.Fatalf("%q and %q become %q and %q", a, b, x, y)
		}
		if strings.ContainsAny(x, "/\x00") {
			t.Fatalf("%q becomes %q", a, x)
		}
	})
}

func TestParseStep(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "12": 12, "step-12": 12, "step-000000000012": 12, "step-000000000012.3-0123abcd": 12, "step-000000000012.broken": 12,
		"": -1, "-1": -1, "x": -1, "1.5": -1, "step-": -1, "step--1": -1, "99999999999999999999": -1,
	} {
		got, err := parseStep(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is step %d, want %d", text, got, want)
		}
	}
}

func TestCkptTexts(t *testing.T) {
	for got, want := range map[string]string{
		codecsText(nil): "-", codecsText(map[string]int64{"raw": 7}): "raw",
		codecsText(map[string]int64{"raw": 1, "planes": 2, "zstd": 1}): "planes 50%, raw 25%, zstd 25%",
		codecsText(map[string]int64{"raw": 0, "zstd": 0}):              "raw 0%, zstd 0%",
		codecsText(map[string]int64{"raw": 917, "huff0": 83}):          "raw 92%, huff0 8%", // to the nearest
		metricsText(map[string]float64{"b": 2, "a": 0.5}):              "a=0.5 b=2", metricsText(map[string]float64{}): "-",
		pinnedText([]string{"", "best"}): "yes,best", ratio(1, 0): "-", ratio(1, 3): "0.333",
		shorten(strings.Repeat("\u00e9", 101)): strings.Repeat("\u00e9", 100) + "...",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1 << 10: "1 KiB", 1536: "1.5 KiB", 5 << 30: "5 GiB", math.MaxInt64: "8 EiB"} {
		if got := (&table{terminal: true}).size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
	if got := (&table{}).size(1 << 20); got != "1048576" {
		t.Errorf("in a pipe: %q", got)
	}
	for want, got := range map[string]string{
		"1023 bytes": (&table{terminal: true}).bytes(1023), "1 KiB": (&table{terminal: true}).bytes(1 << 10), "1024 bytes": (&table{}).bytes(1 << 10),
	} {
		if got != want {
			t.Errorf("in a sentence: %q, want %q", got, want)
		}
	}
}
