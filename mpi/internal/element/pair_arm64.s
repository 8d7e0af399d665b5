#include "textflag.h"
#include "float_arm64.h"

// PAIR is dst[i] = dst2[i] = a[i] + b[i] over n bytes, a multiple of 64 and not 0. ADD adds V4..V7 to V0..V3.
#define PAIR(ADD) \
	MOVD dst+0(FP), R0; \
	MOVD dst2+8(FP), R4; \
	MOVD a+16(FP), R1; \
	MOVD b+24(FP), R2; \
	MOVD n+32(FP), R3; \
loop: \
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]; \
	ADD; \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0); \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R4); \
	SUBS   $64, R3; \
	BNE    loop; \
	RET

// func pairFloat32(dst, dst2, a, b *byte, n int)
TEXT ·pairFloat32(SB), NOSPLIT, $0-40
	PAIR(ADD_FLOAT32)

// func pairFloat64(dst, dst2, a, b *byte, n int)
TEXT ·pairFloat64(SB), NOSPLIT, $0-40
	PAIR(ADD_FLOAT64)
