#include "textflag.h"
#include "float_arm64.h"

// SUM is dst[i] = a[i] + b[i] over n bytes, a multiple of 64 and not 0. ADD adds V4..V7 to V0..V3.
#define SUM(ADD) \
	MOVD dst+0(FP), R0; \
	MOVD a+8(FP), R1; \
	MOVD b+16(FP), R2; \
	MOVD n+24(FP), R3; \
loop: \
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]; \
	ADD; \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0); \
	SUBS   $64, R3; \
	BNE    loop; \
	RET

#define ADD_INT8 \
	VADD V4.B16, V0.B16, V0.B16; \
	VADD V5.B16, V1.B16, V1.B16; \
	VADD V6.B16, V2.B16, V2.B16; \
	VADD V7.B16, V3.B16, V3.B16

#define ADD_INT16 \
	VADD V4.H8, V0.H8, V0.H8; \
	VADD V5.H8, V1.H8, V1.H8; \
	VADD V6.H8, V2.H8, V2.H8; \
	VADD V7.H8, V3.H8, V3.H8

#define ADD_INT32 \
	VADD V4.S4, V0.S4, V0.S4; \
	VADD V5.S4, V1.S4, V1.S4; \
	VADD V6.S4, V2.S4, V2.S4; \
	VADD V7.S4, V3.S4, V3.S4

#define ADD_INT64 \
	VADD V4.D2, V0.D2, V0.D2; \
	VADD V5.D2, V1.D2, V1.D2; \
	VADD V6.D2, V2.D2, V2.D2; \
	VADD V7.D2, V3.D2, V3.D2

// func sumFloat32(dst, a, b *byte, n int)
TEXT ·sumFloat32(SB), NOSPLIT, $0-32
	SUM(ADD_FLOAT32)

// func sumFloat64(dst, a, b *byte, n int)
TEXT ·sumFloat64(SB), NOSPLIT, $0-32
	SUM(ADD_FLOAT64)

// func sumInt8(dst, a, b *byte, n int)
TEXT ·sumInt8(SB), NOSPLIT, $0-32
	SUM(ADD_INT8)

// func sumInt16(dst, a, b *byte, n int)
TEXT ·sumInt16(SB), NOSPLIT, $0-32
	SUM(ADD_INT16)

// func sumInt32(dst, a, b *byte, n int)
TEXT ·sumInt32(SB), NOSPLIT, $0-32
	SUM(ADD_INT32)

// func sumInt64(dst, a, b *byte, n int)
TEXT ·sumInt64(SB), NOSPLIT, $0-32
	SUM(ADD_INT64)
