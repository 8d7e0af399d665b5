#include "textflag.h"
#include "float_arm64.h"

// DIVIDE is dst[i] /= by over n bytes, a multiple of 16 and not 0. DIV divides vectors; V1 holds by in every lane.
#define DIVIDE(DIV) \
	MOVD dst+0(FP), R0; \
	MOVD n+8(FP), R3; \
loop: \
	VLD1   (R0), [V0.B16]; \
	DIV(1, 0, 0); \
	VST1.P [V0.B16], 16(R0); \
	SUBS   $16, R3; \
	BNE    loop; \
	RET

// func divideFloat32(dst *byte, n int, by float32)
TEXT ·divideFloat32(SB), NOSPLIT, $0-20
	MOVWU by+16(FP), R4
	VDUP  R4, V1.S4
	DIVIDE(FDIV_S4)

// func divideFloat64(dst *byte, n int, by float64)
TEXT ·divideFloat64(SB), NOSPLIT, $0-24
	MOVD by+16(FP), R4
	VDUP R4, V1.D2
	DIVIDE(FDIV_D2)
