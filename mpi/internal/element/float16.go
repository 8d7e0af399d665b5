package element

import "ddpbatch/internal/half"

// F16 is an IEEE 754 half-precision number, represented by its 16 bits: 1 of sign, 5
// of exponent, 10 of fraction. Its Type is Float16.
type F16 uint16

// Float32 returns h, exactly. A NaN becomes a quiet one.
func (h F16) Float32() float32 { return half.FromFloat16(uint16(h)) }

// ToFloat16 rounds f to the nearest float16, ties to even. Numbers beyond the largest (65504) become infinity. A NaN stays a NaN
// and keeps its sign.
func ToFloat16(f float32) F16 { return F16(half.ToFloat16(f)) }

// BF16 is the upper half of a float32, represented by its 16 bits: 1 of sign, 8 of
// exponent, 7 of fraction. Its Type is BFloat16.
type BF16 uint16

// Float32 returns h, exactly.
func (h BF16) Float32() float32 { return half.FromBFloat16(uint16(h)) }

// ToBFloat16 rounds f to the nearest bfloat16, ties to even. Numbers beyond the largest become infinity. A NaN stays a NaN and
// keeps its sign.
func ToBFloat16(f float32) BF16 { return BF16(half.ToBFloat16(f)) }
