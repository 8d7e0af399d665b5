package element

import "ddpbatch/internal/half"

// F16 is an IEEE 754 half-precision number, in Go as its 16 bits: 1 of sign, 5
// of exponent, 10 of fraction. Its Type is Float16.
type F16 uint16

// Float32 is h, exactly. A NaN becomes a quiet one.
func (h F16) Float32() float32 { return half.FromFloat16(uint16(h)) }

// ToFloat16 rounds f to the nearest, of two as near to the even one.
// Beyond the largest (65504) that is infinity. A NaN stays one and keeps its sign.
func ToFloat16(f float32) F16 { return F16(half.ToFloat16(f)) }

// BF16 is the upper half of a float32, in Go as its 16 bits: 1 of sign, 8 of
// exponent, 7 of fraction. Its Type is BFloat16.
type BF16 uint16

// Float32 is h, exactly.
func (h BF16) Float32() float32 { return half.FromBFloat16(uint16(h)) }

// ToBFloat16 rounds f to the nearest bfloat16, of two as near to the even one. Beyond the
// largest that is infinity. A NaN stays one and keeps its sign.
func ToBFloat16(f float32) BF16 { return BF16(half.ToBFloat16(f)) }
