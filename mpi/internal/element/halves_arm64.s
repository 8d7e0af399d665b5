#include "textflag.h"
#include "float_arm64.h"

// func sumFloat16(dst, a, b *byte, n int)
//
// It adds eight halves at a time, as two vectors of float32.
TEXT ·sumFloat16(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD b+16(FP), R2
	MOVD n+24(FP), R3
loop:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R2), [V1.B16]
	FCVTL(0, 2)
	FCVTL2(0, 3)
	FCVTL(1, 4)
	FCVTL2(1, 5)
	FADD_S4(4, 2, 2)
	FADD_S4(5, 3, 3)
	FCVTN(2, 0)
	FCVTN2(3, 0)
	VST1.P [V0.B16], 16(R0)
	SUBS   $16, R3
	BNE    loop
	RET

// ROUND makes cutting off the lower 16 bits of the float32 sums in V a rounding to nearest even, as in halves_amd64.s:
// V17 is 0x7fff, V18 masks the last bit that stays. T is overwritten.
#define ROUND(V, T) \
	VUSHR $16, V.S4, T.S4; \
	VAND  V18.B16, T.B16, T.B16; \
	VADD  V17.S4, V.S4, V.S4; \
	VADD  T.S4, V.S4, V.S4

// func sumBFloat16(dst, a, b *byte, n int)
//
// It adds eight at a time: the upper one of each pair becomes a float32 by a mask, the
// lower one by a shift.
TEXT ·sumBFloat16(SB), NOSPLIT, $0-32
	MOVD $0xffff0000, R4
	VDUP R4, V16.S4
	MOVD $0x7fff, R4
	VDUP R4, V17.S4
	MOVD $1, R4
	VDUP R4, V18.S4
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD b+16(FP), R2
	MOVD n+24(FP), R3
loop:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R2), [V1.B16]
	VAND   V16.B16, V0.B16, V2.B16
	VAND   V16.B16, V1.B16, V3.B16
	FADD_S4(3, 2, 2)
	VSHL   $16, V0.S4, V0.S4
	VSHL   $16, V1.S4, V1.S4
	FADD_S4(1, 0, 0)
	ROUND(V0, V1)
	ROUND(V2, V3)
	VUSHR  $16, V0.S4, V0.S4
	VAND   V16.B16, V2.B16, V2.B16
	VORR   V0.B16, V2.B16, V2.B16
	VST1.P [V2.B16], 16(R0)
	SUBS   $16, R3
	BNE    loop
	RET
