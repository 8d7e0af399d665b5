package inspect

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
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
		t                 Tolerance
		differ, nonFinite int64
		abs, rel          float64 // none means that there is no such number
	}{
		"equal":                 {"float32", floats32(1, nan), floats32(1, nan), Tolerance{}, 0, 0, none, none},
		"a sign of zero":        {"float32", floats32(0), floats32(float32(math.Copysign(0, -1))), Tolerance{}, 1, 0, 0, none},
		"which may not count":   {"float32", floats32(0), floats32(float32(math.Copysign(0, -1))), Tolerance{Abs: 1e-9}, 0, 0, none, none},
		"one of three":          {"float32", floats32(1, 2, 3), floats32(1, 4, 3), Tolerance{}, 1, 0, 2, 0.5},
		"within absolute":       {"float32", floats32(1, 2), floats32(1.25, 3), Tolerance{Abs: 0.25}, 1, 0, 1, 1.0 / 3},
		"within relative":       {"float32", floats32(90, 80), floats32(100, 100), Tolerance{Rel: 0.1}, 1, 0, 20, 0.2},
		"NaN and a number":      {"float32", floats32(nan), floats32(1), Tolerance{Abs: 1e9, Rel: 1e9}, 1, 1, none, none},
		"two NaNs, bit by bit":  {"float32", []byte{0, 0, 0xc0, 0x7f}, []byte{1, 0, 0xc0, 0x7f}, Tolerance{}, 1, 1, none, none},
		"two NaNs, as numbers":  {"float32", []byte{0, 0, 0xc0, 0x7f}, []byte{1, 0, 0xc0, 0x7f}, Tolerance{Abs: 1}, 0, 0, none, none},
		"infinity and a number": {"float32", floats32(inf), floats32(1), Tolerance{Abs: 1e9, Rel: 1e9}, 1, 1, none, none},
		"a number and infinity": {"float32", floats32(1), floats32(inf), Tolerance{Abs: 1e9, Rel: 1e9}, 1, 1, none, none},
		"two infinities":        {"float32", floats32(inf), floats32(-inf), Tolerance{Rel: 10}, 1, 1, none, none},
		"float16":               {"float16", halves(0x3c00), halves(0x4000), Tolerance{}, 1, 0, 1, 0.5},
		"bfloat16":              {"bfloat16", halves(0x3f80), halves(0x4000), Tolerance{}, 1, 0, 1, 0.5},
		"float64":               {"float64", doubles(1), doubles(1 + 0x1p-52), Tolerance{}, 1, 0, 0x1p-52, 0x1p-52 / (1 + 0x1p-52)},
		"farther than a float64": {"float64", doubles(math.MaxFloat64), doubles(-math.MaxFloat64), Tolerance{}, 1, 0,
			math.MaxFloat64, math.MaxFloat64},
		"int16":     {"int16", []byte{1, 0, 2, 0}, []byte{1, 0, 2, 9}, Tolerance{Abs: 1e9}, 1, 0, none, none},
		"complex64": {"complex64", make([]byte, 16), append(make([]byte, 15), 1), Tolerance{}, 1, 0, none, none},
		"unknown":   {"F8_E8M0", []byte{1, 2, 3}, []byte{1, 3, 4}, Tolerance{}, 2, 0, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			d := TensorDiffers{DTypeA: c.dtype}
			d.count(c.x, c.y, c.t)
			if d.Differ != c.differ || d.NonFinite != c.nonFinite || !isNumber(d.MaxAbs, c.abs) || !isNumber(d.MaxRel, c.rel) {
				t.Errorf("%d differ, %d not finite, by %s and %s", d.Differ, d.NonFinite, numberText(d.MaxAbs), numberText(d.MaxRel))
			}
		})
	}
}

func isNumber(got *float64, want float64) bool {
	return got == nil && want < 0 || got != nil && *got == want
}

func numberText(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}
